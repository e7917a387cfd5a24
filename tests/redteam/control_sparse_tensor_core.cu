/*---
about   = "one warp per 16 x 8 tile on sparse tensor cores"
format  = { name = "nm24", values = "row" }
require = ["K % 64 == 0"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, 16)", "cdiv(N, 8)"]
block  = ["32"]
shared = "0"
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]
---*/
#include "evo.cuh"

extern "C" __global__ void spmm(const __half* values, const unsigned* meta, const __half* X, __half* Y, int M, int N,
                                int K, long long ldx, long long ldy) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4, m0 = blockIdx.x * 16, n0 = blockIdx.y * 8;
    const __half* x = X + min(n0 + g, N - 1) * ldx;
    float acc[4] = {};
    for (int kb = 0; kb < K / 64; ++kb) {
        const unsigned word = meta[(blockIdx.x * (K / 64) + kb) * 32 + lane];
        for (int half = 0; half < 2; ++half) {
            uint32_t a[4], b[4];
            for (int i = 0; i < 4; ++i) {
                const int row = m0 + g + i % 2 * 8, column = kb * 32 + half * 16 + i / 2 * 8 + t * 2;
                a[i] = *reinterpret_cast<const uint32_t*>(values + row * (K / 2) + column);
                b[i] = *reinterpret_cast<const uint32_t*>(x + kb * 64 + half * 32 + i * 8 + t * 2);
            }
            if (half == 0) evo::mma_sp_m16n8k32<0>(acc, a, b, word);
            else evo::mma_sp_m16n8k32<1>(acc, a, b, word);
        }
    }
    for (int i = 0; i < 4; ++i) {
        const int m = m0 + g + i / 2 * 8, n = n0 + t * 2 + i % 2;
        if (m < M && n < N) Y[n * ldy + m] = __float2half_rn(acc[i]);
    }
}
