/*---
about       = "CSR SpMM by rows: a team of TX threads owns a row and VEC columns each, UNROLL nonzeros in flight"
format      = { name = "csr", order = "ORDER" }
layouts     = ["row"]
constraints = ["TX * TY >= 32 and TX * TY <= 1024"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, TY) * cdiv(N, TX * VEC)"]
block  = ["TX", "TY"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy"]

[params]
TX     = { values = [2, 4, 8, 16, 32],   default = 8 }
TY     = { values = [1, 2, 4, 8, 16, 32], default = 16 }
VEC    = { values = [1, 2, 4, 8],        default = 4 }
UNROLL = { values = [1, 2, 4, 8],        default = 4 }
ORDER  = { values = [0, 1],              default = 0 }  # rows of W as they are, or the longest first
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

// Row splitting (Yang, Buluc, Owens: Design Principles for Sparse Matrix Multiplication on the GPU, Euro-Par 2018).
extern "C" __global__ void __launch_bounds__(TX* TY)
spmm(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldx, int64_t ldy) {
    const int tiles_m = evo::cdiv(M, TY);
    const int i = blockIdx.x % tiles_m * TY + threadIdx.y;  // stored row
    const int n = (blockIdx.x / tiles_m * TX + threadIdx.x) * VEC, left = N - n;
    if (i >= M || left <= 0) return;

    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    const int begin = indptr[i], end = indptr[i + 1], m = row_order[i];
    const in_t* x_columns = x + n;
    float sums[VEC] = {};
    for (int at = begin; at < end; at += UNROLL) {
        int k[UNROLL];  // all before any row of X, whose reads would else wait one for the other
        float w[UNROLL], v[UNROLL][VEC];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const bool inside = at + u < end;
            k[u] = inside ? __ldg(indices + at + u) : -1;
            w[u] = inside ? evo::to_float(__ldg(values + at + u)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            load_x(v[u], x_columns + (k[u] < 0 ? 0 : k[u] * ldx), k[u] < 0 ? 0 : left, aligned);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
    }
    store_y(sums, y, evo::Epilogue{bias, residual, scale}, m, n, left, ldy, aligned);
}
