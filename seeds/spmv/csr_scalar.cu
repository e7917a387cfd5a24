/*---
about   = "CSR SpMV, minimal: one thread per row"
format  = { name = "csr", order = "ORDER" }
require = ["N == 1"]

[[launch]]
kernel = "spmv"
grid   = ["cdiv(M, THREADS)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M"]

[params]
THREADS = { values = [32, 64, 128, 256, 512], default = 128 }
ORDER   = { values = [0, 1, 2],               default = 1 }  # rows as they are, the longest first, alike together
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

extern "C" __global__ void __launch_bounds__(THREADS)
spmv(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M) {
    const int i = blockIdx.x * THREADS + threadIdx.x;  // stored row
    if (i >= M) return;

    float sum = 0.0f;
    for (int at = indptr[i]; at < indptr[i + 1]; ++at)
        sum = fmaf(evo::to_float(values[at]), evo::to_float(x[indices[at]]), sum);
    const int m = row_order[i];
    y[m] = evo::Epilogue{bias, residual, scale}(sum, m, m);
}
