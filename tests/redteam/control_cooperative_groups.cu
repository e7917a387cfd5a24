/*---
about   = "a tile of eight lanes shares an output through cooperative groups"
format  = { name = "nm24", values = "row" }
require = ["K % 64 == 0"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M * N, 16)"]
block  = ["128"]
shared = "0"
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]
---*/
#include <cuda_fp16.h>
#include <cooperative_groups.h>

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

namespace cg = cooperative_groups;

extern "C" __global__ void spmm(const __half* values, const unsigned* meta, const __half* X, __half* Y, int M, int N,
                                int K, long long ldx, long long ldy) {
    const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    const int i = (blockIdx.x * 128 + threadIdx.x) / 8, m = min(i, M * N - 1) % M, n = min(i, M * N - 1) / M;
    float sum = 0.0f;
    for (int k = tile.thread_rank() * 16; k < K; k += 128) sum += dot(values, meta, X + n * ldx, m, K, k, k + 16);
    for (int offset = 4; offset > 0; offset /= 2) sum += tile.shfl_down(sum, offset);
    if (tile.thread_rank() == 0 && i < M * N) Y[n * ldy + m] = __float2half_rn(sum);
}
