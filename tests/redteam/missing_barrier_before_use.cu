/*---
about   = "reads the shared tile without waiting for its writers"
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

extern "C" __global__ void spmm(const __half* values, const unsigned* meta, const __half* X, __half* Y, int M, int N,
                                int K, long long ldx, long long ldy) {
    __shared__ __half tile[8][64];
    const int m = blockIdx.x * 16 + threadIdx.x % 16, n0 = blockIdx.y * 8, column = threadIdx.x / 16;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 64) {
        for (int i = threadIdx.x; i < 8 * 64; i += 128)
            tile[i / 64][i % 64] = X[min(n0 + i / 64, N - 1) * ldx + k0 + i % 64];
        if (m < M)
            for (int k = 0; k < 64; k += 4) {
                const unsigned word = meta[(m / 16 * (K / 64) + k0 / 64) * 32 + m % 8 * 4 + k / 16] >> (m / 8 % 2 * 16);
                const __half* w = values + m * (K / 2) + (k0 + k) / 2;
                sum += __half2float(w[0]) * __half2float(tile[column][k + (word >> k % 16 & 3)]);
                sum += __half2float(w[1]) * __half2float(tile[column][k + (word >> (k % 16 + 2) & 3)]);
            }
        __syncthreads();
    }
    if (m < M && n0 + column < N) Y[(n0 + column) * ldy + m] = __float2half_rn(sum);
}
