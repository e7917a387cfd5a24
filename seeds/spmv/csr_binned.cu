/*---
about       = "CSR SpMV by bins of row length: a block to each long row, a warp to a middling one, few lanes to a short"
format      = { name = "csr", order = "length" }
require     = ["N == 1"]
constraints = ["LONG > MIDDLE"]

[[launch]]
kernel = "spmv"
grid   = ["min(SMS * BLOCKS, M)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "W.bins", "X", "Y", "bias", "residual", "scale", "M"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 128 }
BLOCKS  = { values = [2, 4, 8, 16, 32],   default = 16 }  # of one SM; each walks over its share of the rows
LONG    = { values = [8, 9, 10, 11, 12],  default = 10 }  # rows of 2^LONG nonzeros or more
MIDDLE  = { values = [3, 4, 5, 6],        default = 5 }   # rows of 2^MIDDLE nonzeros or more
SHORT   = { values = [1, 2, 4, 8, 16],    default = 4 }   # lanes to a short row
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int WARPS = THREADS / 32;
constexpr int UNROLL = 4;

// Products of one row, every STEP-th from the first on.
template <int STEP>
__device__ __forceinline__ float products(const in_t* values, const int* indices, const in_t* x, int at, int end) {
    float sum = 0.0f;
    for (; at < end; at += UNROLL * STEP) {
        float w[UNROLL], v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const bool inside = at + u * STEP < end;
            w[u] = inside ? evo::to_float(__ldg(values + at + u * STEP)) : 0.0f;
            v[u] = inside ? evo::to_float(__ldg(x + __ldg(indices + at + u * STEP))) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) sum = fmaf(w[u], v[u], sum);
    }
    return sum;
}

// The sum over teams of LANES neighbouring lanes; all of the warp take part.
template <int LANES>
__device__ __forceinline__ float team_sum(float value) {
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

// Stored rows first .. last, LANES lanes to each; a block takes THREADS / LANES of them.
template <int LANES>
__device__ __forceinline__ void rows_of_teams(const in_t* values, const int* indices, const int* indptr,
                                              const int* row_order, const in_t* x, out_t* y,
                                              const evo::Epilogue& epilogue, int first, int last) {
    const int i = first + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool mine = i < last;
    const int begin = mine ? __ldg(indptr + i) : 0, end = mine ? __ldg(indptr + i + 1) : 0;
    const float sum = team_sum<LANES>(products<LANES>(values, indices, x, begin + lane, end));
    if (mine && lane == 0) {
        const int m = __ldg(row_order + i);
        y[m] = epilogue(sum, m, m);
    }
}

// Rows are sorted by length, so each bin is one piece; the longest are begun first.
extern "C" __global__ void __launch_bounds__(THREADS)
spmv(const in_t* values, const int* indices, const int* indptr, const int* row_order, const int* bins, const in_t* x,
     out_t* y, const in_t* bias, const out_t* residual, float scale, int M) {
    __shared__ float sums[WARPS];
    const evo::Epilogue epilogue{bias, residual, scale};
    const int longs = __ldg(bins + LONG), middles = __ldg(bins + MIDDLE);  // where the next bin begins
    const int end_middle = longs + evo::cdiv(middles - longs, WARPS);
    const int end_short = end_middle + evo::cdiv(M - middles, THREADS / SHORT);

    for (int unit = blockIdx.x; unit < end_short; unit += gridDim.x) {
        if (unit >= end_middle) {
            const int first = middles + (unit - end_middle) * (THREADS / SHORT);
            rows_of_teams<SHORT>(values, indices, indptr, row_order, x, y, epilogue, first, M);
        } else if (unit >= longs) {
            const int first = longs + (unit - longs) * WARPS;
            rows_of_teams<32>(values, indices, indptr, row_order, x, y, epilogue, first, middles);
        } else {
            const int begin = __ldg(indptr + unit) + threadIdx.x, end = __ldg(indptr + unit + 1);
            const float sum = team_sum<32>(products<THREADS>(values, indices, x, begin, end));
            if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
            __syncthreads();
            if (threadIdx.x == 0) {
                float total = 0.0f;
#pragma unroll
                for (int w = 0; w < WARPS; ++w) total += sums[w];
                const int m = __ldg(row_order + unit);
                y[m] = epilogue(total, m, m);
            }
            __syncthreads();
        }
    }
}
