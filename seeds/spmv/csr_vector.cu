/*---
about   = "CSR SpMV by rows: as many lanes to a row as suit the mean row length, UNROLL nonzeros of a lane in flight"
format  = { name = "csr", order = "ORDER" }
require = ["N == 1"]

[[launch]]
kernel = "spmv_2"
when   = "W.nnz <= 2 * SHARE * M"
grid   = ["cdiv(M, THREADS // 2)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M"]

[[launch]]
kernel = "spmv_4"
when   = "W.nnz > 2 * SHARE * M and W.nnz <= 4 * SHARE * M"
grid   = ["cdiv(M, THREADS // 4)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M"]

[[launch]]
kernel = "spmv_8"
when   = "W.nnz > 4 * SHARE * M and W.nnz <= 8 * SHARE * M"
grid   = ["cdiv(M, THREADS // 8)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M"]

[[launch]]
kernel = "spmv_16"
when   = "W.nnz > 8 * SHARE * M and W.nnz <= 16 * SHARE * M"
grid   = ["cdiv(M, THREADS // 16)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M"]

[[launch]]
kernel = "spmv_32"
when   = "W.nnz > 16 * SHARE * M"
grid   = ["cdiv(M, THREADS // 32)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 128 }
SHARE   = { values = [1, 2, 4, 8],        default = 2 }  # nonzeros a lane should have of a mean row
UNROLL  = { values = [1, 2, 4, 8],        default = 4 }
ORDER   = { values = [0, 1, 2],           default = 0 }  # rows as they are, the longest first, alike together
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

// Row splitting with a team of LANES lanes to a row (Bell and Garland, "Implementing sparse matrix-vector
// multiplication on throughput-oriented processors", SC 2009).
template <int LANES>
__device__ __forceinline__ void row_of_team(const in_t* values, const int* indices, const int* indptr,
                                            const int* row_order, const in_t* x, out_t* y,
                                            const evo::Epilogue& epilogue, int M) {
    const int i = blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool mine = i < M;  // teams without a row stay: shuffles take whole warps
    const int end = mine ? __ldg(indptr + i + 1) : 0, m = mine ? __ldg(row_order + i) : 0;
    int at = (mine ? __ldg(indptr + i) : 0) + lane;

    float sum = 0.0f;
    for (; at < end; at += UNROLL * LANES) {
        float w[UNROLL], v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const bool inside = at + u * LANES < end;
            w[u] = inside ? evo::to_float(__ldg(values + at + u * LANES)) : 0.0f;
            v[u] = inside ? evo::to_float(__ldg(x + __ldg(indices + at + u * LANES))) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) sum = fmaf(w[u], v[u], sum);
    }
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (mine && lane == 0) y[m] = epilogue(sum, m, m);
}

#define TEAM(LANES)                                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                         \
    spmv_##LANES(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, \
                 out_t* y, const in_t* bias, const out_t* residual, float scale, int M) {                         \
        row_of_team<LANES>(values, indices, indptr, row_order, x, y, evo::Epilogue{bias, residual, scale}, M);    \
    }

TEAM(2)
TEAM(4)
TEAM(8)
TEAM(16)
TEAM(32)
