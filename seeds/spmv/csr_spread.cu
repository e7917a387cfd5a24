/*---
about   = "CSR SpMV by bins of row length: more lanes the longer a row, several blocks to the longest; vector loads"
format  = { name = "csr", order = "length" }
require = ["N == 1"]

[[workspace]]
name  = "partial"
bytes = "4 * (3 * W.nnz // (2 * max(128, THREADS * PER, W.nnz // 400)) + 1)"

[[workspace]]
name  = "arrived"
bytes = "4 * (W.nnz // (2 * max(128, THREADS * PER, W.nnz // 400)) + 1)"
init  = "zero_once"

[[launch]]
kernel = "spmv"
when   = "W.nnz <= WIDE"
grid   = ["""cdiv(W.rows256, THREADS // min(256, THREADS)) + cdiv(W.rows64 - W.rows256, THREADS // 64) \
             + cdiv(W.rows16 - W.rows64, THREADS // 16) + cdiv(W.rows4 - W.rows16, THREADS // 4) \
             + cdiv(M - W.rows4, THREADS) \
             + (W.max_row // 2 >= max(128, THREADS * PER, W.nnz // 400)) \
               * min(W.rows256 * (W.max_row // max(128, THREADS * PER, W.nnz // 400)), \
                     3 * W.nnz // (2 * max(128, THREADS * PER, W.nnz // 400)))"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "W.nnz", "W.max_row", "W.rows256", "W.rows4", "W.rows16", "W.rows64", "W.rows256"]

[[launch]]
kernel = "spmv"
when   = "W.nnz > WIDE and W.nnz <= 8 * WIDE"
grid   = ["""cdiv(W.rows1024, THREADS // min(256, THREADS)) + cdiv(W.rows256 - W.rows1024, THREADS // 64) \
             + cdiv(W.rows64 - W.rows256, THREADS // 16) + cdiv(W.rows16 - W.rows64, THREADS // 4) \
             + cdiv(M - W.rows16, THREADS) \
             + (W.max_row // 2 >= max(128, THREADS * PER, W.nnz // 400)) \
               * min(W.rows256 * (W.max_row // max(128, THREADS * PER, W.nnz // 400)), \
                     3 * W.nnz // (2 * max(128, THREADS * PER, W.nnz // 400)))"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "W.nnz", "W.max_row", "W.rows256", "W.rows16", "W.rows64", "W.rows256", "W.rows1024"]

[[launch]]
kernel = "spmv"
when   = "W.nnz > 8 * WIDE"
grid   = ["""cdiv(W.rows4096, THREADS // min(256, THREADS)) + cdiv(W.rows1024 - W.rows4096, THREADS // 64) \
             + cdiv(W.rows256 - W.rows1024, THREADS // 16) + cdiv(W.rows64 - W.rows256, THREADS // 4) \
             + cdiv(M - W.rows64, THREADS) \
             + (W.max_row // 2 >= max(128, THREADS * PER, W.nnz // 400)) \
               * min(W.rows256 * (W.max_row // max(128, THREADS * PER, W.nnz // 400)), \
                     3 * W.nnz // (2 * max(128, THREADS * PER, W.nnz // 400)))"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "W.nnz", "W.max_row", "W.rows256", "W.rows64", "W.rows256", "W.rows1024", "W.rows4096"]

[params]
THREADS = { values = [64, 128, 256, 512],              default = 256 }
QUADS   = { values = [1, 2, 4],                        default = 4 }       # fours of nonzeros that a lane has in flight
PER     = { values = [4, 8, 16, 32],                   default = 8 }       # nonzeros of a lane where blocks share a row
WIDE    = { values = [50000, 150000, 300000, 1000000], default = 300000 }  # nonzeros: a quarter of the lanes beyond
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

// Four neighbouring nonzeros, read as whole vectors; bit u of `which` is set where number u lies in begin .. end.
struct Quad {
    int k[4], which;
    float w[4];
    __device__ __forceinline__ void read(const in_t* values, const int* indices, int at, int begin, int end, int nnz) {
        which = 0;
        if (at >= end) return;
        which = 0xf << max(begin - at, 0) & 0xf >> max(4 - (end - at), 0);
        if (nnz - at >= 4) {
            evo::load_floats(w, values + at);
            const evo::Vector<int, 4> columns = evo::load_readonly<4>(indices + at);
#pragma unroll
            for (int u = 0; u < 4; ++u) k[u] = columns.items[u];
        } else {  // at the end of W
#pragma unroll
            for (int u = 0; u < 3; ++u) {
                if (u >= nnz - at) continue;
                w[u] = evo::to_float(__ldg(values + at + u));
                k[u] = __ldg(indices + at + u);
            }
        }
    }
    __device__ __forceinline__ bool has(int u) const { return which >> u & 1; }
};

// Nonzeros of a stored row that one block takes, at least, where several share it.
__device__ __forceinline__ int piece_of(int nnz) { return max(max(THREADS * PER, nnz / 400), 128); }

// Part `part` of stored row `row`, of `parts`; row -1: there is none.
struct Part {
    int row, part, parts;
};

// Which part of which of the `longs` longest rows (at most 256) is number `unit`; every warp finds it by itself.
__device__ __forceinline__ Part part_of(const int* indptr, int longs, int piece, int unit) {
    const int lane = threadIdx.x % 32;
    Part found{-1, 0, 0};
    int before = 0;  // parts of the rows so far
    for (int first = 0; first < longs && found.row < 0; first += 32) {
        const int row = first + lane;
        const int own = row < longs ? max((__ldg(indptr + row + 1) - __ldg(indptr + row)) / piece, 1) : 0;
        int up_to = own;
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other = __shfl_up_sync(0xffffffffu, up_to, distance);
            if (lane >= distance) up_to += other;
        }
        up_to += before;
        before = __shfl_sync(0xffffffffu, up_to, 31);
        const unsigned beyond = __ballot_sync(0xffffffffu, unit < up_to);
        if (beyond != 0) {
            const int from = __ffs(beyond) - 1;
            found.row = first + from;
            found.parts = __shfl_sync(0xffffffffu, own, from);
            found.part = unit - (__shfl_sync(0xffffffffu, up_to, from) - found.parts);
        }
    }
    return found;
}

// A row has 4^c lanes for a bin of its length, or a whole block, so that a lane has few nonzeros of it; what they find
// is added up by shuffles, then in shared memory. Rows much longer than the others' share are cut into parts; the block
// that is the last to have its part adds them up in their order.
extern "C" __global__ void __launch_bounds__(THREADS)
spmv(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, out_t* y,
     float* partial, int* arrived, const in_t* bias, const out_t* residual, float scale, int M, int nnz, int max_row,
     int rows256, int end4, int end16, int end64, int end256) {
    __shared__ float warp_sums[THREADS / 32];
    int ends[5] = {end256, end64, end16, end4, M};  // of the rows of 256 lanes, of 64, ...
    const int piece = piece_of(nnz), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int longs = 0, long_units = 0;
    if (max_row / 2 >= piece) {
        longs = min(rows256, nnz / (2 * piece));  // rows that long have more than 256
        long_units = int(min(int64_t(rows256) * (max_row / piece), 3ll * nnz / (2 * piece)));  // or more than there are
#pragma unroll
        for (int bin = 0; bin < 5; ++bin) ends[bin] = max(ends[bin], longs);
    }
    const int number = blockIdx.x;
    int unit = number, row = M, lanes = THREADS;
    Part own{-1, 0, 1};
    if (unit < long_units) {
        own = part_of(indptr, longs, piece, unit);
        if (own.row < 0) return;
        row = own.row;
    } else {
        unit -= long_units;
        int first = longs;
        bool found = false;
#pragma unroll
        for (int bin = 0; bin < 5; ++bin) {
            const int given = min(256 >> 2 * bin, THREADS), rows = THREADS / given;  // lanes to a row; rows to a block
            const int units = evo::cdiv(ends[bin] - first, rows);
            if (!found && unit < units) {
                found = true;
                lanes = given;
                row = first + unit * rows + threadIdx.x / given;
                if (row >= ends[bin]) row = M;
            }
            unit -= units;
            first = ends[bin];
        }
        if (!found) return;
    }

    const bool mine = row < M;
    int begin = mine ? __ldg(indptr + row) : 0, end = mine ? __ldg(indptr + row + 1) : 0;
    const int m = mine ? __ldg(row_order + row) : 0;
    if (own.parts > 1) {
        const int share = (end - begin) / own.parts, more = (end - begin) % own.parts;
        begin += own.part * share + min(own.part, more);
        end = begin + share + (own.part < more);
    }
    float sum = 0.0f;
    const int step = 4 * lanes;
    int at = (begin & ~3) + 4 * (threadIdx.x & (lanes - 1));
    while (at < end) {
        Quad quads[QUADS];
        float v[QUADS][4] = {};
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            quads[q].read(values, indices, at, begin, end, nnz);
            at = end - at > step ? at + step : end;
        }
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
#pragma unroll
            for (int u = 0; u < 4; ++u)
                if (quads[q].has(u)) v[q][u] = evo::to_float(__ldg(x + quads[q].k[u]));
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
#pragma unroll
            for (int u = 0; u < 4; ++u) sum = fmaf(quads[q].has(u) ? quads[q].w[u] : 0.0f, v[q][u], sum);
    }

    for (int distance = 1; distance < 32 && distance < lanes; distance *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lanes > 32) {  // the same for the whole block
        if (lane == 0) warp_sums[warp] = sum;
        __syncthreads();
        if (warp & (lanes / 32 - 1)) return;
        for (int other = warp + 1; other < warp + lanes / 32; ++other) sum += warp_sums[other];
    }
    if (own.parts > 1) {  // one warp is left
        int before = 0;
        if (lane == 0) {
            partial[number] = sum;
            __threadfence();
            before = atomicAdd(arrived + row, 1);
        }
        if (__shfl_sync(0xffffffffu, before, 0) != own.parts - 1) return;
        __threadfence();
        sum = 0.0f;
        for (int part = lane; part < own.parts; part += 32) sum += __ldcg(partial + number - own.part + part);
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (lane == 0) arrived[row] = 0;
    }
    if (mine && (threadIdx.x & (lanes - 1)) == 0) y[m] = evo::Epilogue{bias, residual, scale}(sum, m, m);
}
