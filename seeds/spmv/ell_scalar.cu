/*---
about   = "ELLPACK SpMV: one thread per row, neighbours read neighbouring words"
format  = { name = "ell", order = "column" }
require = ["N == 1"]

[[launch]]
kernel = "spmv"
grid   = ["cdiv(M, THREADS)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.max_row", "X", "Y", "bias", "residual", "scale", "M"]

[params]
THREADS = { values = [32, 64, 128, 256, 512],         default = 128 }
UNROLL  = { values = [1, 2, 4, 8],                    default = 4 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

extern "C" __global__ void __launch_bounds__(THREADS)
spmv(const in_t* values, const int* indices, int width, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= M) return;

    float sum = 0.0f;
    for (int slot = 0; slot < width; slot += UNROLL) {
        int k[UNROLL];
        float w[UNROLL], v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            k[u] = slot + u < width ? __ldg(indices + int64_t(slot + u) * M + i) : -1;
            w[u] = k[u] >= 0 ? evo::to_float(__ldg(values + int64_t(slot + u) * M + i)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) v[u] = k[u] >= 0 ? evo::to_float(__ldg(x + k[u])) : 0.0f;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) sum = fmaf(w[u], v[u], sum);
        if (k[UNROLL - 1] < 0) break;  // only padding follows
    }
    y[i] = evo::Epilogue{bias, residual, scale}(sum, i, i);
}
