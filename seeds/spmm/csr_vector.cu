/*---
about       = "CSR SpMM, vectorised: lanes split columns (VEC each) and nonzeros of a row, and reduce by shuffles"
format      = { name = "csr", order = "ORDER" }
layouts     = ["row"]
constraints = ["LANES * VEC >= 4"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, WARPS) * cdiv(N, LANES * VEC)"]
block  = ["32 * WARPS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy"]

[params]
WARPS  = { values = [1, 2, 4, 8, 16],  default = 4 }
LANES  = { values = [1, 2, 4, 8, 16],  default = 4 }  # along the columns; 32 / LANES take different nonzeros
VEC    = { values = [1, 2, 4, 8],      default = 8 }
UNROLL = { values = [1, 2, 4],         default = 2 }
ORDER  = { values = [0, 1],            default = 0 }  # rows of W as they are, or the longest first
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int TEAMS = 32 / LANES;  // groups of lanes that work on different nonzeros of the same row

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

extern "C" __global__ void __launch_bounds__(32 * WARPS)
spmm(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldx, int64_t ldy) {
    const int lane = threadIdx.x % 32, team = lane / LANES, tiles_m = evo::cdiv(M, WARPS);
    const int i = blockIdx.x % tiles_m * WARPS + threadIdx.x / 32;  // stored row
    const int n = (blockIdx.x / tiles_m * LANES + lane % LANES) * VEC, left = N - n;
    if (i >= M) return;  // a whole warp

    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    const int end = indptr[i + 1], m = row_order[i];
    float sums[VEC] = {};
    for (int base = indptr[i] + team; base < end; base += TEAMS * UNROLL) {
        int k[UNROLL];  // all before any row of X, whose reads would else wait one for the other
        float w[UNROLL], v[UNROLL][VEC];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const int at = base + u * TEAMS;
            k[u] = at < end ? __ldg(indices + at) : -1;
            w[u] = at < end ? evo::to_float(__ldg(values + at)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            load_x(v[u], x + (k[u] < 0 ? 0 : k[u] * ldx) + n, k[u] < 0 ? 0 : left, aligned);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
    }
    // region: reduce(sums)
    // Butterfly over the teams: every lane ends with the sum of its columns.
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2)
#pragma unroll
        for (int c = 0; c < VEC; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], distance);
    // endregion
    if (team == 0 && left > 0)
        store_y(sums, y, evo::Epilogue{bias, residual, scale}, m, n, left, ldy, aligned);
}
