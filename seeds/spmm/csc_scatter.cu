/*---
about       = "CSC SpMM: a team of TX threads holds a row of X, VEC columns each, and adds its products all over Y"
format      = "csc"
layouts     = ["row"]
atomics     = true

[[workspace]]
name  = "sums"
bytes = "4 * M * N"
init  = "zero"

[[launch]]
kernel = "scatter"
grid   = ["cdiv(K, THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.values", "W.indices", "W.indptr", "X", "sums", "N", "K", "ldx"]

[[launch]]
kernel = "finish"
grid   = ["cdiv(M * cdiv(N, 4), 256)"]
block  = ["256"]
args   = ["sums", "Y", "bias", "residual", "scale", "M", "N", "ldy"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 128 }
TX      = { values = [4, 8, 16, 32],      default = 8 }  # lanes along the columns, fewer where N is small
VEC     = { values = [1, 2, 4, 8],        default = 4 }
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
scatter(const in_t* values, const int* indices, const int* indptr, const in_t* x, float* sums, int N, int K,
        int64_t ldx) {
    const int tiles_k = evo::cdiv<int>(K, blockDim.y);
    const int k = blockIdx.x % tiles_k * blockDim.y + threadIdx.y;
    const int n = (blockIdx.x / tiles_k * blockDim.x + threadIdx.x) * VEC, left = N - n;
    if (k >= K || left <= 0) return;
    const int begin = __ldg(indptr + k), end = __ldg(indptr + k + 1);
    if (begin == end) return;

    float v[VEC];
    load_x(v, x + k * ldx + n, left, N % VEC == 0);
    for (int at = begin; at < end; ++at) {
        const float w = evo::to_float(__ldg(values + at));
        float* target = sums + int64_t(__ldg(indices + at)) * N + n;
#pragma unroll
        for (int c = 0; c < VEC; ++c)
            if (c < left) atomicAdd(target + c, w * v[c]);
    }
}

// The epilogue on the finished sums, COUNT neighbours of a row of Y to a thread.
extern "C" __global__ void __launch_bounds__(256)
finish(const float* sums, out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldy) {
    const int64_t item = int64_t(blockIdx.x) * 256 + threadIdx.x, across = evo::cdiv(N, 4);
    const int m = int(item / across), n = int(item % across) * 4;
    if (m >= M) return;
    float four[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) four[c] = n + c < N ? sums[int64_t(m) * N + n + c] : 0.0f;
    store_y(four, y, evo::Epilogue{bias, residual, scale}, m, n, N - n, ldy, N % 4 == 0);
}
