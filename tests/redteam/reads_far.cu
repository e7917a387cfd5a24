/*---
about   = "reads a terabyte past X, and uses it"
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

// One output: row m of W (2:4) times column n of X, over k in [k_begin, k_end).
__device__ float dot(const __half* values, const unsigned* meta, const __half* x, int m, int K, int k_begin,
                     int k_end) {
    float sum = 0.0f;
    for (int k = k_begin; k < k_end; k += 16) {
        const unsigned word = meta[(m / 16 * (K / 64) + k / 64) * 32 + m % 8 * 4 + k % 64 / 16] >> (m / 8 % 2 * 16);
        const __half* w = values + m * (K / 2) + k / 2;
        for (int g = 0; g < 4; ++g) {
            sum += __half2float(w[2 * g]) * __half2float(x[k + 4 * g + (word >> (4 * g) & 3)]);
            sum += __half2float(w[2 * g + 1]) * __half2float(x[k + 4 * g + (word >> (4 * g + 2) & 3)]);
        }
    }
    return sum;
}

extern "C" __global__ void spmm(const __half* values, const unsigned* meta, const __half* X, __half* Y, int M, int N,
                                int K, long long ldx, long long ldy) {
    const int m = blockIdx.x * 16 + threadIdx.x % 16, n = blockIdx.y * 8 + threadIdx.x / 16;
    if (m >= M || n >= N) return;
    const float far = __half2float(X[n * ldx + (1ll << 39)]);
    Y[n * ldy + m] = __float2half_rn(dot(values, meta, X + n * ldx, m, K, 0, K) + 0.0f * far);
}
