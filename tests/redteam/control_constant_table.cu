/*---
about   = "decodes metadata through a constant table"
format  = { name = "nm24", values = "row" }
require = ["K % 64 == 0"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, 16)", "cdiv(N, 8)"]
block  = ["128"]
shared = "0"
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]
---*/
#include <cuda_fp16.h>

__constant__ int first[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
__constant__ int second[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};

extern "C" __global__ void spmm(const __half* values, const unsigned* meta, const __half* X, __half* Y, int M, int N,
                                int K, long long ldx, long long ldy) {
    const int m = blockIdx.x * 16 + threadIdx.x % 16, n = blockIdx.y * 8 + threadIdx.x / 16;
    if (m >= M || n >= N) return;
    float sum = 0.0f;
    for (int k = 0; k < K; k += 4) {
        const unsigned word = meta[(m / 16 * (K / 64) + k / 64) * 32 + m % 8 * 4 + k % 64 / 16] >> (m / 8 % 2 * 16);
        const __half* w = values + m * (K / 2) + k / 2;
        const unsigned code = word >> k % 16 & 15;
        sum += __half2float(w[0]) * __half2float(X[n * ldx + k + first[code]]);
        sum += __half2float(w[1]) * __half2float(X[n * ldx + k + second[code]]);
    }
    Y[n * ldy + m] = __float2half_rn(sum);
}
