/*---
about   = "SELL-C-sigma SpMV: one thread per row, neighbours read neighbouring words"
format  = { name = "sell", c = "C", sigma = "SIGMA" }
require = ["N == 1"]

[[launch]]
kernel = "spmv"
grid   = ["cdiv(M, THREADS)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M"]

[params]
THREADS = { values = [32, 64, 128, 256, 512],         default = 128 }
UNROLL  = { values = [1, 2, 4, 8],                    default = 4 }
C       = { values = [4, 8, 16, 32, 64, 128],           default = 32 }    # rows of a slice
SIGMA   = { values = [1, 64, 256, 1024, 4096, 16384], default = 1024 }  # rows sorted by length together
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

extern "C" __global__ void __launch_bounds__(THREADS)
spmv(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M) {
    const int i = blockIdx.x * THREADS + threadIdx.x;  // stored row
    if (i >= M) return;

    const int end = __ldg(indptr + i / C + 1);
    float sum = 0.0f;
    for (int at = __ldg(indptr + i / C) + i % C; at < end; at += UNROLL * C) {
        int k[UNROLL];
        float w[UNROLL], v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            k[u] = at + u * C < end ? __ldg(indices + at + u * C) : -1;
            w[u] = k[u] >= 0 ? evo::to_float(__ldg(values + at + u * C)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) v[u] = k[u] >= 0 ? evo::to_float(__ldg(x + k[u])) : 0.0f;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) sum = fmaf(w[u], v[u], sum);
        if (k[UNROLL - 1] < 0) break;  // only padding follows
    }
    const int m = __ldg(row_order + i);
    y[m] = evo::Epilogue{bias, residual, scale}(sum, m, m);
}
