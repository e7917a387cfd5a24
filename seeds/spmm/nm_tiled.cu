/*---
about       = "N:M SpMM of any ratio: a thread takes a row and BN columns, a block stages X in shared memory"
format      = { name = "nm", ratio = "RATIO", order = "column" }
constraints = ["BK * BN <= 4096"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, THREADS) * cdiv(N, BN)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
RATIO   = { values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], default = 6 }  # 2:4 1:2 1:4 4:8 2:8 1:8 8:16 4:16 2:16 1:16
THREADS = { values = [32, 64, 128, 256],             default = 64 }
BN      = { values = [4, 8, 16, 32],                 default = 16 }
BK      = { values = [64, 128, 256],                 default = 128 }
UNROLL  = { values = [1, 2, 4, 8],                   default = 4 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

// The choices of the format's option `ratio`.
constexpr int SLOTS[] = {2, 1, 1, 4, 2, 1, 8, 4, 2, 1}, GROUP[] = {4, 2, 4, 8, 8, 8, 16, 16, 16, 16};
constexpr int NS = SLOTS[RATIO], MS = GROUP[RATIO];
constexpr int STRIDE = BN + 4;  // floats between rows of the X tile

// X[k0 .., n0 ..] -> float[BK][STRIDE]; what lies outside becomes zero.
__device__ __forceinline__ void stage_x(float* tile, const in_t* x, int k0, int n0, int N, int K, int64_t ldx) {
#pragma unroll 4
    for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
        const int k = evo::X_ROW ? i / BN : i % BK, n = evo::X_ROW ? i % BN : i / BK;
        const bool inside = k0 + k < K && n0 + n < N;
        tile[k * STRIDE + n] = inside ? evo::to_float(__ldg(x + evo::x_index(k0 + k, n0 + n, ldx))) : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const uint8_t* indices, const in_t* x, out_t* y, const in_t* bias, const out_t* residual,
     float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    __shared__ __align__(16) float x_tile[BK * STRIDE];
    const int tiles_m = evo::cdiv(M, THREADS), m = blockIdx.x % tiles_m * THREADS + threadIdx.x;
    const int n0 = blockIdx.x / tiles_m * BN, groups = evo::cdiv(K, MS);
    const int row = min(m, M - 1);  // threads past the last row stay: they stage X

    float sums[BN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        stage_x(x_tile, x, k0, n0, N, K, ldx);
        __syncthreads();
        const int first = k0 / MS * NS, last = min((k0 + BK) / MS, groups) * NS;
#pragma unroll UNROLL
        for (int slot = first; slot < last; ++slot) {
            const int64_t at = int64_t(slot) * M + row;
            const float w = evo::to_float(__ldg(values + at));
            const int k = slot / NS * MS - k0 + __ldg(indices + at);
            const float* x_row = x_tile + k * STRIDE;
#pragma unroll
            for (int n = 0; n < BN; n += 4) {
                const float4 four = *reinterpret_cast<const float4*>(x_row + n);
                sums[n] = fmaf(w, four.x, sums[n]);
                sums[n + 1] = fmaf(w, four.y, sums[n + 1]);
                sums[n + 2] = fmaf(w, four.z, sums[n + 2]);
                sums[n + 3] = fmaf(w, four.w, sums[n + 3]);
            }
        }
        __syncthreads();
    }
    if (m >= M) return;
    const evo::Epilogue epilogue{bias, residual, scale};
#pragma unroll
    for (int n = 0; n < BN; ++n) {
        if (n0 + n < N) {
            const int64_t at = evo::y_index(m, n0 + n, ldy);
            y[at] = epilogue(sums[n], m, at);
        }
    }
}
