/*---
about       = "SELL-C-sigma SpMM: a team of TX threads owns a row and VEC columns each, UNROLL slots in flight"
format      = { name = "sell", c = "C", sigma = "SIGMA" }
layouts     = ["row"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy"]

[params]
C       = { values = [4, 8, 16, 32, 64],              default = 8 }  # rows of a slice
SIGMA   = { values = [1, 64, 256, 1024, 4096, 16384], default = 1024 }  # rows sorted by length together
THREADS = { values = [64, 128, 256, 512],             default = 128 }
TX      = { values = [4, 8, 16, 32],                  default = 8 }  # lanes along the columns, fewer where N is small
VEC     = { values = [1, 2, 4, 8],                    default = 4 }
UNROLL  = { values = [1, 2, 4, 8],                    default = 4 }
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

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldx, int64_t ldy) {
    const int tiles_m = evo::cdiv<int>(M, blockDim.y);
    const int i = blockIdx.x % tiles_m * blockDim.y + threadIdx.y;  // stored row
    const int n = (blockIdx.x / tiles_m * blockDim.x + threadIdx.x) * VEC, left = N - n;
    if (i >= M || left <= 0) return;

    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    const int end = __ldg(indptr + i / C + 1), m = __ldg(row_order + i);
    float sums[VEC] = {};
    for (int at = __ldg(indptr + i / C) + i % C; at < end; at += UNROLL * C) {
        float w[UNROLL], v[UNROLL][VEC];
        int k[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) k[u] = at + u * C < end ? __ldg(indices + at + u * C) : -1;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            w[u] = at + u * C < end ? evo::to_float(__ldg(values + at + u * C)) : 0.0f;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)  // -1 is padding: no element of W, and no row of X
            load_x(v[u], x + (k[u] < 0 ? 0 : k[u] * ldx) + n, k[u] < 0 ? 0 : left, aligned);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
        if (k[UNROLL - 1] < 0) break;  // only padding follows
    }
    store_y(sums, y, evo::Epilogue{bias, residual, scale}, m, n, left, ldy, aligned);
}
