/*---
about       = "Bitmap SpMM by rows: a team of TX threads walks the set bits of a row and owns VEC columns each"
format      = { name = "bitmap", block = "1x32", order = "row" }
layouts     = ["row"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.values", "W.bitmap", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 128 }
TX      = { values = [4, 8, 16, 32],      default = 8 }  # lanes along the columns, fewer where N is small
VEC     = { values = [1, 2, 4, 8],        default = 4 }
UNROLL  = { values = [1, 2, 4, 8],        default = 2 }
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
spmm(const in_t* values, const uint32_t* bitmap, const int* indptr, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    const int tiles_m = evo::cdiv<int>(M, blockDim.y), words = evo::cdiv(K, 32);
    const int i = blockIdx.x % tiles_m * blockDim.y + threadIdx.y;
    const int n = (blockIdx.x / tiles_m * blockDim.x + threadIdx.x) * VEC, left = N - n;
    if (i >= M || left <= 0) return;

    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    const int64_t first = int64_t(i) * words;
    int at = __ldg(indptr + first);  // values of a row follow one another
    float sums[VEC] = {};
    for (int h = 0; h < words; ++h) {
        uint32_t bits = __ldg(bitmap + first + h);
        while (bits != 0) {
            int k[UNROLL];
            float w[UNROLL], v[UNROLL][VEC];
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const bool set = bits != 0;
                k[u] = set ? h * 32 + __ffs(bits) - 1 : -1;
                w[u] = set ? evo::to_float(__ldg(values + at)) : 0.0f;
                at += set;
                bits &= bits - 1;  // 0 stays 0
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                load_x(v[u], x + (k[u] < 0 ? 0 : k[u] * ldx) + n, k[u] < 0 ? 0 : left, aligned);
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
#pragma unroll
                for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
        }
    }
    store_y(sums, y, evo::Epilogue{bias, residual, scale}, i, n, left, ldy, aligned);
}
