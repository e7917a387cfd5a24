/*---
about   = "SpMV along diagonals: one thread per row, neighbours read neighbouring words of W and of x"
format  = { name = "dia", order = "diagonal" }
require = ["N == 1"]

[[launch]]
kernel = "spmv"
grid   = ["cdiv(M, THREADS)"]
block  = ["THREADS"]
args   = ["W.values", "W.offsets", "W.ndiags", "X", "Y", "bias", "residual", "scale", "M", "K"]

[params]
THREADS = { values = [32, 64, 128, 256, 512],         default = 128 }
UNROLL  = { values = [1, 2, 4, 8],                    default = 4 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

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
spmv(const in_t* values, const int* offsets, int ndiags, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int K) {
    const int i0 = blockIdx.x * THREADS, i1 = min(i0 + THREADS, M) - 1, i = i0 + threadIdx.x;
    if (i >= M) return;

    // Of many diagonals the rows of a block meet W along these alone; of few, to look which costs more than it saves.
    const bool many = ndiags > 64;
    const int begin = many ? left_of(offsets, ndiags, 0, i1) : 0;
    const int end = many ? left_of(offsets, ndiags, K, i0) : ndiags;
    float sum = 0.0f;
    for (int d = begin; d < end; d += UNROLL) {
        int k[UNROLL];
        float w[UNROLL], v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            k[u] = d + u < ndiags ? i + __ldg(offsets + d + u) : -1;
            w[u] = k[u] >= 0 && k[u] < K ? evo::to_float(__ldg(values + int64_t(d + u) * M + i)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) v[u] = k[u] >= 0 && k[u] < K ? evo::to_float(__ldg(x + k[u])) : 0.0f;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) sum = fmaf(w[u], v[u], sum);
    }
    y[i] = evo::Epilogue{bias, residual, scale}(sum, i, i);
}
