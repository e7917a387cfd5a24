/*---
about   = "CSR SpMM by bins of row length: more teams of lanes the longer a row, so that each is done in a round or two"
format  = { name = "csr", order = "length" }
layouts = ["row"]

[[workspace]]
name  = "partial"
bytes = "4 * N * (3 * W.nnz // (2 * max(128, THREADS // 8 * PER, W.nnz // 400)) + 1)"

[[workspace]]
name  = "arrived"
bytes = "4 * (W.nnz // (2 * max(128, THREADS // 8 * PER, W.nnz // 400)) + 1) * cdiv(N, 2 * VEC)"
init  = "zero_once"

[[launch]]
kernel = "spmm_2"
when   = "N <= 2 * VEC and W.nnz * N <= WIDE"
grid   = ["""(W.rows256 + cdiv(W.rows64 - W.rows256, THREADS // 2 // min(64, THREADS // 2)) \
              + cdiv(W.rows16 - W.rows64, THREADS // 32) \
              + cdiv(W.rows4 - W.rows16, THREADS // 8) + cdiv(M - W.rows4, THREADS // 2) \
              + (W.max_row // 2 >= max(128, THREADS // 2 * PER, W.nnz // 400)) \
                * min(W.rows256 * (W.max_row // max(128, THREADS // 2 * PER, W.nnz // 400)), \
                      3 * W.nnz // (2 * max(128, THREADS // 2 * PER, W.nnz // 400)))) * cdiv(N, 2 * VEC)"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "N", "ldx", "ldy", "W.nnz", "W.max_row", "W.rows256",
          "W.rows4", "W.rows16", "W.rows64", "W.rows256"]

[[launch]]
kernel = "spmm_2"
when   = "N <= 2 * VEC and W.nnz * N > WIDE and W.nnz * N <= 8 * WIDE"
grid   = ["""(W.rows1024 + cdiv(W.rows256 - W.rows1024, THREADS // 2 // min(64, THREADS // 2)) \
              + cdiv(W.rows64 - W.rows256, THREADS // 32) \
              + cdiv(W.rows16 - W.rows64, THREADS // 8) + cdiv(M - W.rows16, THREADS // 2) \
              + (W.max_row // 2 >= max(128, THREADS // 2 * PER, W.nnz // 400)) \
                * min(W.rows256 * (W.max_row // max(128, THREADS // 2 * PER, W.nnz // 400)), \
                      3 * W.nnz // (2 * max(128, THREADS // 2 * PER, W.nnz // 400)))) * cdiv(N, 2 * VEC)"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "N", "ldx", "ldy", "W.nnz", "W.max_row", "W.rows256",
          "W.rows16", "W.rows64", "W.rows256", "W.rows1024"]

[[launch]]
kernel = "spmm_2"
when   = "N <= 2 * VEC and W.nnz * N > 8 * WIDE"
grid   = ["""(W.rows4096 + cdiv(W.rows1024 - W.rows4096, THREADS // 2 // min(64, THREADS // 2)) \
              + cdiv(W.rows256 - W.rows1024, THREADS // 32) \
              + cdiv(W.rows64 - W.rows256, THREADS // 8) + cdiv(M - W.rows64, THREADS // 2) \
              + (W.max_row // 2 >= max(128, THREADS // 2 * PER, W.nnz // 400)) \
                * min(W.rows256 * (W.max_row // max(128, THREADS // 2 * PER, W.nnz // 400)), \
                      3 * W.nnz // (2 * max(128, THREADS // 2 * PER, W.nnz // 400)))) * cdiv(N, 2 * VEC)"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "N", "ldx", "ldy", "W.nnz", "W.max_row", "W.rows256",
          "W.rows64", "W.rows256", "W.rows1024", "W.rows4096"]

[[launch]]
kernel = "spmm_8"
when   = "N > 2 * VEC and W.nnz * N <= WIDE"
grid   = ["""(W.rows256 + cdiv(W.rows64 - W.rows256, THREADS // 8 // min(64, THREADS // 8)) \
              + cdiv(W.rows16 - W.rows64, THREADS // 8 // min(16, THREADS // 8)) \
              + cdiv(W.rows4 - W.rows16, THREADS // 32) + cdiv(M - W.rows4, THREADS // 8) \
              + (W.max_row // 2 >= max(128, THREADS // 8 * PER, W.nnz // 400)) \
                * min(W.rows256 * (W.max_row // max(128, THREADS // 8 * PER, W.nnz // 400)), \
                      3 * W.nnz // (2 * max(128, THREADS // 8 * PER, W.nnz // 400)))) * cdiv(N, 8 * VEC)"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "N", "ldx", "ldy", "W.nnz", "W.max_row", "W.rows256",
          "W.rows4", "W.rows16", "W.rows64", "W.rows256"]

[[launch]]
kernel = "spmm_8"
when   = "N > 2 * VEC and W.nnz * N > WIDE and W.nnz * N <= 8 * WIDE"
grid   = ["""(W.rows1024 + cdiv(W.rows256 - W.rows1024, THREADS // 8 // min(64, THREADS // 8)) \
              + cdiv(W.rows64 - W.rows256, THREADS // 8 // min(16, THREADS // 8)) \
              + cdiv(W.rows16 - W.rows64, THREADS // 32) + cdiv(M - W.rows16, THREADS // 8) \
              + (W.max_row // 2 >= max(128, THREADS // 8 * PER, W.nnz // 400)) \
                * min(W.rows256 * (W.max_row // max(128, THREADS // 8 * PER, W.nnz // 400)), \
                      3 * W.nnz // (2 * max(128, THREADS // 8 * PER, W.nnz // 400)))) * cdiv(N, 8 * VEC)"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "N", "ldx", "ldy", "W.nnz", "W.max_row", "W.rows256",
          "W.rows16", "W.rows64", "W.rows256", "W.rows1024"]

[[launch]]
kernel = "spmm_8"
when   = "N > 2 * VEC and W.nnz * N > 8 * WIDE"
grid   = ["""(W.rows4096 + cdiv(W.rows1024 - W.rows4096, THREADS // 8 // min(64, THREADS // 8)) \
              + cdiv(W.rows256 - W.rows1024, THREADS // 8 // min(16, THREADS // 8)) \
              + cdiv(W.rows64 - W.rows256, THREADS // 32) + cdiv(M - W.rows64, THREADS // 8) \
              + (W.max_row // 2 >= max(128, THREADS // 8 * PER, W.nnz // 400)) \
                * min(W.rows256 * (W.max_row // max(128, THREADS // 8 * PER, W.nnz // 400)), \
                      3 * W.nnz // (2 * max(128, THREADS // 8 * PER, W.nnz // 400)))) * cdiv(N, 8 * VEC)"""]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "partial", "arrived", "bias", "residual",
          "scale", "M", "N", "ldx", "ldy", "W.nnz", "W.max_row", "W.rows256",
          "W.rows64", "W.rows256", "W.rows1024", "W.rows4096"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 256 }
VEC     = { values = [1, 2, 4, 8],        default = 4 }
QUADS   = { values = [1, 2],              default = 1 }   # fours of nonzeros that a team has in flight
PER     = { values = [4, 8, 16, 32],      default = 8 }   # nonzeros of a team, at least, where blocks share a row
AHEAD   = { values = [0, 1],              default = 1 }   # 1: nonzeros of the next round are read during this one
WIDE    = { values = [500000, 1000000, 2000000, 4000000, 8000000], default = 2000000 }  # nnz * N: fewer teams beyond
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

// region: epilogue(sums, y, m, n, left, ldy, aligned)
// Applies the epilogue to COUNT neighbours of a row of Y and stores those before `left`.
template <int COUNT>
__device__ __forceinline__ void store_y(const float (&sums)[COUNT], out_t* y, const evo::Epilogue& epilogue, int m,
                                        int n, int left, int64_t ldy, bool aligned) {
    const int64_t at = evo::y_index(m, n, ldy);
    out_t items[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) items[i] = i < left ? epilogue(sums[i], m, at + i) : evo::from_float<out_t>(0.0f);
    if (aligned && left >= COUNT) {
        evo::store_items(y + at, items);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (i < left) y[at + i] = items[i];
    }
}
// endregion

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

// Row k of X, rows being `stride` bytes apart: one instruction, where a product in 64 bits takes five.
__device__ __forceinline__ const in_t* row_of(const in_t* x, int k, uint32_t stride) {
    uint64_t address;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(address) : "r"(k), "r"(stride), "l"(x));
    return reinterpret_cast<const in_t*>(address);
}

// sums += the products of QUADS fours with VEC columns of X.
__device__ __forceinline__ void add_products(float (&sums)[VEC], const Quad (&quads)[QUADS], const in_t* x_columns,
                                             uint32_t stride, int left, bool aligned) {
    float v[QUADS][4][VEC] = {};
    if (aligned) {
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
#pragma unroll
            for (int u = 0; u < 4; ++u)
                if (quads[q].has(u)) evo::load_floats(v[q][u], row_of(x_columns, quads[q].k[u], stride));
    } else {
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
#pragma unroll
            for (int u = 0; u < 4; ++u)
#pragma unroll
                for (int c = 0; c < VEC; ++c)
                    if (quads[q].has(u) && c < left)
                        v[q][u][c] = evo::to_float(__ldg(row_of(x_columns, quads[q].k[u], stride) + c));
    }
#pragma unroll
    for (int q = 0; q < QUADS; ++q)
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const float w = quads[q].has(u) ? quads[q].w[u] : 0.0f;
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w, v[q][u][c], sums[c]);
        }
}

// Nonzeros of a stored row that one block takes, at least, where several share it.
__device__ __forceinline__ int piece_of(int teams, int nnz) { return max(max(teams * PER, nnz / 400), 128); }

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

// A team is LANES lanes, VEC columns to each. A row has 4^c teams for a bin of its length, or a whole block, so that a
// team has few nonzeros of it, more where the card is full anyway; what its teams find is added up by shuffles, then in
// shared memory. Rows much longer than the others' share are cut into parts; the block that is the last to have its
// part adds them up in their order.
template <int LANES>
__device__ __forceinline__ void rows_of_teams(const in_t* values, const int* indices, const int* indptr,
                                              const int* row_order, const in_t* x, out_t* y, float* partial,
                                              int* arrived, const evo::Epilogue& epilogue, int M, int N, int ldx,
                                              int64_t ldy, int nnz, int max_row, int rows256, int (&ends)[5]) {
    constexpr int TEAMS = THREADS / LANES, WARPS = THREADS / 32;
    __shared__ float warp_sums[WARPS][LANES * VEC];
    const int tiles = evo::cdiv(N, LANES * VEC), units_there = tiles > 1 ? gridDim.x / tiles : gridDim.x;
    const int tile = tiles > 1 ? blockIdx.x / units_there : 0;
    const int lane = threadIdx.x % 32, team = threadIdx.x / LANES;
    const int n = (tile * LANES + threadIdx.x % LANES) * VEC, left = N - n;
    const bool aligned = N % VEC == 0;  // rows of X and Y are N long

    const int piece = piece_of(TEAMS, nnz);
    int longs = 0, long_units = 0;
    if (max_row / 2 >= piece) {
        longs = min(rows256, nnz / (2 * piece));  // rows that long have more than 256
        long_units = int(min(int64_t(rows256) * (max_row / piece), 3ll * nnz / (2 * piece)));  // or more than there are
#pragma unroll
        for (int bin = 0; bin < 5; ++bin) ends[bin] = max(ends[bin], longs);
    }
    int unit = blockIdx.x - tile * units_there, row, teams = TEAMS;
    const int number = unit;
    Part own{-1, 0, 1};
    if (unit < long_units) {
        own = part_of(indptr, longs, piece, unit);
        if (own.row < 0) return;
        row = own.row;
    } else {
        unit -= long_units;
        row = M;
        int first = longs;
        bool found = false;
#pragma unroll
        for (int bin = 0; bin < 5; ++bin) {
            const int given = min(256 >> 2 * bin, TEAMS), rows = TEAMS / given;  // teams to a row; rows to a block
            const int units = evo::cdiv(ends[bin] - first, rows);
            if (!found && unit < units) {
                found = true;
                teams = given;
                row = first + unit * rows + team / given;
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
    float sums[VEC] = {};
    if (left > 0) {
        const int step = 4 * teams;
        int at = (begin & ~3) + 4 * (team & (teams - 1));
        const auto read = [&](Quad(&quads)[QUADS]) {
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                quads[q].read(values, indices, at, begin, end, nnz);
                at = end - at > step ? at + step : end;
            }
        };
        Quad quads[QUADS], coming[QUADS];
        read(quads);
        for (bool more = quads[0].which; more;) {
            more = at < end;
            if (AHEAD) read(coming);  // before rows of X are waited for
            add_products(sums, quads, x + n, ldx * uint32_t(sizeof(in_t)), left, aligned);
            if (AHEAD) {
#pragma unroll
                for (int q = 0; q < QUADS; ++q) quads[q] = coming[q];
            } else {
                read(quads);
            }
        }
    }

    // The sum over the teams of a row, in its first team.
    const int warp = threadIdx.x / 32;
    const auto add_up = [&](int lanes) {
        for (int distance = LANES; distance < 32 && distance < lanes; distance *= 2)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], distance);
        if (lanes <= 32) return;  // the same for the whole block
        if (lane < LANES)
#pragma unroll
            for (int c = 0; c < VEC; ++c) warp_sums[warp][lane * VEC + c] = sums[c];
        __syncthreads();
        if (lane < LANES && (warp & (lanes / 32 - 1)) == 0)
            for (int other = warp + 1; other < warp + lanes / 32; ++other)
#pragma unroll
                for (int c = 0; c < VEC; ++c) sums[c] += warp_sums[other][lane * VEC + c];
    };
    add_up(teams * LANES);
    if (own.parts > 1) {
        __shared__ int before;
        float* columns = partial + n;  // a row of it is the sum of a part
        if (warp == 0) {
            if (lane < LANES)
#pragma unroll
                for (int c = 0; c < VEC; ++c)
                    if (c < left) columns[int64_t(number) * N + c] = sums[c];
            __threadfence();
            __syncwarp();
            if (lane == 0) before = atomicAdd(arrived + int64_t(row) * tiles + tile, 1);
        }
        __syncthreads();
        if (before != own.parts - 1) return;
        __threadfence();
#pragma unroll
        for (int c = 0; c < VEC; ++c) sums[c] = 0.0f;
        for (int part = team; part < own.parts; part += TEAMS)
#pragma unroll
            for (int c = 0; c < VEC; ++c)
                if (c < left) sums[c] += __ldcg(columns + int64_t(number - own.part + part) * N + c);
        add_up(THREADS);
        if (threadIdx.x == 0) arrived[int64_t(row) * tiles + tile] = 0;
    }
    if (mine && left > 0 && (team & (teams - 1)) == 0) store_y(sums, y, epilogue, m, n, left, ldy, aligned);
}

#define TEAMS_OF(LANES)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                          \
    spmm_##LANES(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x,   \
                 out_t* y, float* partial, int* arrived, const in_t* bias, const out_t* residual, float scale,     \
                 int M, int N, int64_t ldx, int64_t ldy, int nnz, int max_row, int rows256, int end4, int end16,   \
                 int end64, int end256) {                                                                          \
        int ends[5] = {end256, end64, end16, end4, M};  /* of the rows of 256 teams, of 64, ... */                 \
        rows_of_teams<LANES>(values, indices, indptr, row_order, x, y, partial, arrived,                           \
                             evo::Epilogue{bias, residual, scale}, M, N, int(ldx), ldy, nnz, max_row, rows256,     \
                             ends);                                                                                \
    }

TEAMS_OF(2)
TEAMS_OF(8)
