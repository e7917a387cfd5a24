/*---
about       = "CSR SpMM, a warp per row: 32 nonzeros are read at once and handed round by shuffles"
format      = { name = "csr", order = "ORDER" }
layouts     = ["row"]
constraints = ["VEC * TILES <= 16"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, WARPS) * cdiv(N, 32 * VEC * TILES)"]
block  = ["32 * WARPS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy"]

[params]
WARPS = { values = [1, 2, 4, 8, 16], default = 4 }
VEC   = { values = [1, 2, 4, 8],     default = 2 }
TILES = { values = [1, 2, 4],        default = 1 }  # groups of 32 * VEC columns of one warp
ORDER = { values = [0, 1],           default = 0 }  # rows of W as they are, or the longest first
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

// region: x_row(x, left, aligned: v)
// COUNT neighbours of a row of X as floats; the columns past `left` are 0. Whole vectors where rows are aligned.
template <int COUNT>
__device__ __forceinline__ void load_x(float (&v)[COUNT], const in_t* x, int left, bool aligned) {
    if (aligned && left >= COUNT) {
        evo::load_floats(v, x);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) v[i] = i < left ? evo::to_float(x[i]) : 0.0f;
    }
}
// endregion

// region: epilogue(sums, y, m, n, left, ldy, aligned)
// Applies the epilogue to COUNT neighbours of a row of Y and stores those before `left`.
template <int COUNT>
__device__ __forceinline__ void store_y(const float (&sums)[COUNT], out_t* y, const evo::Epilogue& epilogue, int m,
                                        int n, int left, int64_t ldy, bool aligned) {
    const int64_t at = evo::y_index(m, n, ldy);
    out_t items[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) items[i] = i < left ? epilogue(sums[i], m, at + i) : evo::from_float<out_t>(0.0f);
    if (aligned && left >= COUNT) {
        evo::store_items(y + at, items);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (i < left) y[at + i] = items[i];
    }
}
// endregion

// Coalesced row caching and coarse-grained warp merging (GE-SpMM, arXiv 2007.03179), the cache held in registers.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
spmm(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldx, int64_t ldy) {
    const int lane = threadIdx.x % 32, tiles_m = evo::cdiv(M, WARPS);
    const int i = blockIdx.x % tiles_m * WARPS + threadIdx.x / 32;  // stored row
    const int n0 = blockIdx.x / tiles_m * (32 * VEC * TILES) + lane * VEC;
    if (i >= M) return;  // a whole warp

    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    const int begin = indptr[i], end = indptr[i + 1], m = row_order[i];
    float sums[TILES][VEC] = {};
    for (int base = begin; base < end; base += 32) {
        const bool mine = base + lane < end;
        const float own_w = mine ? evo::to_float(__ldg(values + base + lane)) : 0.0f;
        const int own_k = mine ? __ldg(indices + base + lane) : 0;
        const int count = min(32, end - base);
        for (int j = 0; j < count; j += 4) {
            float v[4][TILES][VEC];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                const in_t* x_row = x + __shfl_sync(0xffffffffu, own_k, j + u) * ldx + n0;
                const int left = j + u < count ? N - n0 : 0;
#pragma unroll
                for (int t = 0; t < TILES; ++t)
                    load_x(v[u][t], x_row + t * 32 * VEC, left - t * 32 * VEC, aligned);
            }
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                const float w = __shfl_sync(0xffffffffu, own_w, j + u);
#pragma unroll
                for (int t = 0; t < TILES; ++t)
#pragma unroll
                    for (int c = 0; c < VEC; ++c) sums[t][c] = fmaf(w, v[u][t][c], sums[t][c]);
            }
        }
    }
    const evo::Epilogue epilogue{bias, residual, scale};
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
        const int n = n0 + t * 32 * VEC;
        if (n < N) store_y(sums[t], y, epilogue, m, n, N - n, ldy, aligned);
    }
}
