/*---
about   = "CSR SpMM, minimal: one thread per output"
format  = { name = "csr", order = "natural" }
constraints = ["BM * BN <= 1024", "BM * BN >= 32"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(N, BN) * cdiv(M, BM)"]
block  = ["BN", "BM"]
args   = ["W.values", "W.indices", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx", "ldy"]

[params]
BM = { values = [1, 2, 4, 8, 16],      default = 4 }
BN = { values = [8, 16, 32, 64, 128],  default = 32 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

extern "C" __global__ void __launch_bounds__(BM* BN)
spmm(const in_t* values, const int* indices, const int* indptr, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int64_t ldx, int64_t ldy) {
    const int across = evo::cdiv(N, BN);
    const int n = blockIdx.x % across * BN + threadIdx.x, m = blockIdx.x / across * BM + threadIdx.y;
    if (m >= M || n >= N) return;

    float sum = 0.0f;
    for (int i = indptr[m]; i < indptr[m + 1]; ++i)
        sum = fmaf(evo::to_float(values[i]), evo::to_float(x[evo::x_index(indices[i], n, ldx)]), sum);
    const int64_t at = evo::y_index(m, n, ldy);
    y[at] = evo::Epilogue{bias, residual, scale}(sum, m, at);
}
