/*---
about       = "SpMM along diagonals: a team of TX threads owns a row and VEC columns each; neighbours share rows of X"
format      = { name = "dia", order = "ORDER" }
layouts     = ["row"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.values", "W.offsets", "W.ndiags", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 128 }
TX      = { values = [4, 8, 16, 32],      default = 8 }  # lanes along the columns, fewer where N is small
VEC     = { values = [1, 2, 4, 8],        default = 4 }
UNROLL  = { values = [1, 2, 4, 8],        default = 4 }
ORDER   = { values = [0, 1],              default = 1 }  # elements of a diagonal together, or those of a row
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

// How many diagonals lie left of a column in row i: their offsets ascend.
__device__ __forceinline__ int left_of(const int* offsets, int ndiags, int column, int i) {
    int low = 0, high = ndiags;
    if (ndiags == 0 || i + __ldg(offsets) >= column) return 0;
    if (i + __ldg(offsets + ndiags - 1) < column) return ndiags;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (i + __ldg(offsets + middle) < column) low = middle + 1;
        else high = middle;
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const int* offsets, int ndiags, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    const int tiles_m = evo::cdiv<int>(M, blockDim.y);
    const int i0 = blockIdx.x % tiles_m * blockDim.y, i1 = min(i0 + int(blockDim.y), M) - 1, i = i0 + threadIdx.y;
    const int n = (blockIdx.x / tiles_m * blockDim.x + threadIdx.x) * VEC, left = N - n;
    if (i >= M || left <= 0) return;

    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    const int64_t first = ORDER ? int64_t(i) * ndiags : i, step = ORDER ? 1 : M;
    // Of many diagonals the rows of a block meet W along these alone; of few, to look which costs more than it saves.
    const bool many = ndiags > 64;
    const int begin = many ? left_of(offsets, ndiags, 0, i1) : 0;
    const int end = many ? left_of(offsets, ndiags, K, i0) : ndiags;
    float sums[VEC] = {};
    for (int d = begin; d < end; d += UNROLL) {
        int k[UNROLL];
        float w[UNROLL], v[UNROLL][VEC];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            k[u] = d + u < ndiags ? i + __ldg(offsets + d + u) : -1;
            w[u] = d + u < ndiags ? evo::to_float(__ldg(values + first + (d + u) * step)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const bool inside = k[u] >= 0 && k[u] < K;  // diagonals run out of W on either side
            if (!inside) w[u] = 0.0f;
            load_x(v[u], x + (inside ? k[u] * ldx : 0) + n, inside ? left : 0, aligned);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
    }
    store_y(sums, y, evo::Epilogue{bias, residual, scale}, i, n, left, ldy, aligned);
}
