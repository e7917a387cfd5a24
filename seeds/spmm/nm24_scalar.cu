/*---
about       = "2:4 SpMM, minimal: one thread per output, fp32 FMA over the stored values"
format      = { name = "nm24", values = "row" }
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
require     = ["K % 64 == 0"]
constraints = ["BM * BN <= 1024", "BM * BN >= 32"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, BM) * cdiv(N, BN)"]
block  = ["BM", "BN"]
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
BM = { values = [8, 16, 32, 64, 128, 256], default = 32 }
BN = { values = [1, 2, 4, 8, 16],          default = 4 }
---*/
#include "evo.cuh"

extern "C" __global__ void __launch_bounds__(BM* BN)
spmm(const __half* values, const uint32_t* meta, const __half* x, __half* y, int M, int N, int K, int64_t ldx,
     int64_t ldy) {
    const int tiles_m = evo::cdiv(M, BM);
    const int m = blockIdx.x % tiles_m * BM + threadIdx.x, n = blockIdx.x / tiles_m * BN + threadIdx.y;
    if (m >= M || n >= N) return;

    const __half* w_row = values + int64_t(m) * (K / 2);
    const uint32_t* words = meta + int64_t(m / 16) * (K / 64) * 32 + m % 8 * 4;
    const __half* x_column = x + n * ldx;
    float sum = 0.0f;
    for (int k = 0; k < K; k += 16) {
        // A metadata word holds 16 values of k of rows m % 8 (low half) and m % 8 + 8 (high half): 4 bits a group.
        const uint32_t word = words[k / 64 * 32 + k / 16 % 4] >> (m / 8 % 2 * 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int index = k + i / 2 * 4 + (word >> (2 * i) & 3);
            sum += __half2float(w_row[k / 2 + i]) * __half2float(x_column[index]);
        }
    }
    y[n * ldy + m] = __float2half_rn(sum);
}
