/*---
about   = "CSR SpMV along the merge path: every thread has ITEMS nonzeros or row ends, however rows are distributed"
format  = { name = "csr", order = "ORDER" }
require = ["N == 1"]

[[workspace]]
name  = "heads"
bytes = "4 * cdiv(M + W.nnz, THREADS * ITEMS)"

[[workspace]]
name  = "tails"
bytes = "4 * cdiv(M + W.nnz, THREADS * ITEMS)"

[[launch]]
kernel = "spmv"
grid   = ["cdiv(M + W.nnz, THREADS * ITEMS)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "W.diagonals", "X", "Y", "heads", "tails", "bias",
          "residual", "scale", "M", "W.nnz"]

[[launch]]
kernel = "join"
when   = "M + W.nnz > THREADS * ITEMS"
grid   = ["cdiv(cdiv(M + W.nnz, THREADS * ITEMS), 4)"]
block  = ["128"]
args   = ["W.indptr", "W.row_order", "W.diagonals", "Y", "heads", "tails", "bias", "residual", "scale", "M", "W.nnz"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 128 }
ITEMS   = { values = [3, 5, 7, 9, 11],    default = 7 }  # odd: threads then read different banks
ORDER   = { values = [0, 1, 2],           default = 0 }  # rows as they are, the longest first, alike together
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

// Merrill and Garland, "Merge-based parallel sparse matrix-vector multiplication", SC 2016; here sums of rows that
// cross threads are joined by a scan and those that cross blocks by a second kernel, always in the same order.
constexpr int TILE = THREADS * ITEMS, STEPS = 64;  // steps of a block; of the path between two entries of `diagonals`
constexpr int WARPS = THREADS / 32;

// Steps d0 .. d1 of the path: nonzeros k0 .. k1, ends of stored rows r0 .. r1.
struct Share {
    int r0, r1, k0, k1;
    __device__ __forceinline__ Share(const int* diagonals, int tile, int M, int nnz) {
        const int64_t total = int64_t(M) + nnz, d0 = int64_t(tile) * TILE, d1 = min(d0 + TILE, total);
        r0 = __ldg(diagonals + d0 / STEPS);
        r1 = d1 == total ? M : __ldg(diagonals + d1 / STEPS);
        k0 = int(d0 - r0), k1 = int(d1 - r1);
    }
};

// Adds what threads have left over to the rows it belongs to; keys ascend with the thread. Returns, in the one thread
// that has it, the sum of what belongs to row `rows`, which does not end here; `has` says which thread that is.
__device__ __forceinline__ float join_threads(float* row_sums, int key, float sum, int rows, bool& has) {
    __shared__ int warp_keys[WARPS];
    __shared__ float warp_sums[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int other_key = __shfl_up_sync(0xffffffffu, key, distance);
        const float other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance && other_key == key) sum += other;
    }
    const int next = __shfl_down_sync(0xffffffffu, key, 1);
    if (lane == 31) {
        warp_keys[warp] = key;
        warp_sums[warp] = sum;
    } else if (next != key) {
        row_sums[key] += sum;  // no other warp has the last lane of this key before its own last one
    }
    __syncthreads();
    has = false;
    if (threadIdx.x >= WARPS || (threadIdx.x > 0 && warp_keys[threadIdx.x - 1] == warp_keys[threadIdx.x])) return 0.0f;
    key = warp_keys[threadIdx.x];
    sum = 0.0f;
    for (int w = threadIdx.x; w < WARPS && warp_keys[w] == key; ++w) sum += warp_sums[w];
    has = key == rows;
    if (!has) row_sums[key] += sum;
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmv(const in_t* values, const int* indices, const int* indptr, const int* row_order, const int* diagonals,
     const in_t* x, out_t* y, float* heads, float* tails, const in_t* bias, const out_t* residual, float scale, int M,
     int nnz) {
    __shared__ float products[TILE];
    __shared__ int ends[TILE + 1];
    __shared__ float row_sums[TILE];
    const Share share(diagonals, blockIdx.x, M, nnz);
    const int rows = share.r1 - share.r0, items = share.k1 - share.k0;

#pragma unroll
    for (int u = 0; u < ITEMS; ++u) {
        const int i = u * THREADS + threadIdx.x;
        if (i < items)
            products[i] = evo::to_float(__ldg(values + share.k0 + i)) *
                          evo::to_float(__ldg(x + __ldg(indices + share.k0 + i)));
        else if (i < items + rows)  // never more than TILE together
            ends[i - items] = __ldg(indptr + share.r0 + i - items + 1) - share.k0;
    }
    if (threadIdx.x == 0) ends[rows] = TILE + 1;  // the row after the last does not end here
    __syncthreads();

    // This thread's steps begin after `row` row ends and `item` nonzeros.
    const int first = min(int(threadIdx.x) * ITEMS, rows + items), last = min(first + ITEMS, rows + items);
    int row = max(0, first - items), high = min(first, rows);
    while (row < high) {
        const int middle = (row + high) / 2;
        if (ends[middle] + middle < first)
            row = middle + 1;
        else
            high = middle;
    }
    int item = first - row;
    float sum = 0.0f;
#pragma unroll
    for (int step = 0; step < ITEMS; ++step) {
        if (first + step >= last) break;
        if (item < ends[row]) {
            sum += products[item++];
        } else {
            row_sums[row++] = sum;
            sum = 0.0f;
        }
    }
    __syncthreads();
    bool has;
    const float left = join_threads(row_sums, row, sum, rows, has);
    if (has) tails[blockIdx.x] = left;
    __syncthreads();

    const evo::Epilogue epilogue{bias, residual, scale};
    const bool begun_before = rows > 0 && __ldg(indptr + share.r0) < share.k0;
    for (int i = threadIdx.x; i < rows; i += THREADS) {
        if (i == 0 && begun_before) {
            heads[blockIdx.x] = row_sums[0];
        } else {
            const int m = __ldg(row_order + share.r0 + i);
            y[m] = epilogue(row_sums[i], m, m);
        }
    }
}

// A warp for each block of `spmv`: the row that began before it and ended in it.
extern "C" __global__ void __launch_bounds__(128)
join(const int* indptr, const int* row_order, const int* diagonals, out_t* y, const float* heads, const float* tails,
     const in_t* bias, const out_t* residual, float scale, int M, int nnz) {
    const int tile = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (int64_t(tile) * TILE >= int64_t(M) + nnz) return;  // a whole warp
    const Share share(diagonals, tile, M, nnz);
    if (share.r0 == share.r1) return;
    const int begin = __ldg(indptr + share.r0);
    if (begin >= share.k0) return;

    float sum = 0.0f;
    for (int other = (begin + share.r0) / TILE + lane; other < tile; other += 32) sum += tails[other];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane == 0) {
        const int m = __ldg(row_order + share.r0);
        y[m] = evo::Epilogue{bias, residual, scale}(sum + heads[tile], m, m);
    }
}
