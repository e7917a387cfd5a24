/*---
about       = "Dense GEMM, minimal: one thread per output, fp32 FMA"
format      = "dense"
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
constraints = ["BM * BN <= 1024", "BM * BN >= 32"]

[[launch]]
kernel = "gemm"
grid   = ["cdiv(M, BM) * cdiv(N, BN)"]
block  = ["BM", "BN"]
args   = ["W.values", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
BM = { values = [8, 16, 32, 64, 128, 256], default = 32 }
BN = { values = [1, 2, 4, 8, 16],          default = 4 }
---*/
#include "evo.cuh"

extern "C" __global__ void __launch_bounds__(BM* BN)
gemm(const __half* values, const __half* x, __half* y, int M, int N, int K, int64_t ldx, int64_t ldy) {
    const int tiles_m = evo::cdiv(M, BM);
    const int m = blockIdx.x % tiles_m * BM + threadIdx.x, n = blockIdx.x / tiles_m * BN + threadIdx.y;
    if (m >= M || n >= N) return;

    const __half* w_row = values + int64_t(m) * K;
    const __half* x_column = x + n * ldx;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) sum += __half2float(w_row[k]) * __half2float(x_column[k]);
    y[n * ldy + m] = __float2half_rn(sum);
}
