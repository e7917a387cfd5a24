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

extern "C" __global__ void __launch_bounds__(THREADS)
spmv(const in_t* values, const int* offsets, int ndiags, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int K) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= M) return;

    float sum = 0.0f;
    for (int d = 0; d < ndiags; d += UNROLL) {
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
