/*---
about   = "CSR SpMM out of shared memory: a block holds a strip of X, all of its K rows, and walks over rows of W"
format  = { name = "csr", order = "length" }
layouts = ["row"]

[[launch]]
kernel = "strip_8"
when   = "N > 4 * VEC and K * 32 * VEC <= STRIP"
grid   = ["min(max(SMS * BLOCKS // cdiv(N, 8 * VEC), 1), cdiv(8 * (M + W.nnz // 2), THREADS)) * cdiv(N, 8 * VEC)"]
block  = ["THREADS"]
shared = "K * 32 * VEC"
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "K",
          "ldx", "ldy", "W.nnz"]

[[launch]]
kernel = "strip_4"
when   = "N > 2 * VEC and K * 16 * VEC <= STRIP and (N <= 4 * VEC or K * 32 * VEC > STRIP)"
grid   = ["min(max(SMS * BLOCKS // cdiv(N, 4 * VEC), 1), cdiv(4 * (M + W.nnz // 2), THREADS)) * cdiv(N, 4 * VEC)"]
block  = ["THREADS"]
shared = "K * 16 * VEC"
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "K",
          "ldx", "ldy", "W.nnz"]

[[launch]]
kernel = "strip_2"
when   = "K * 8 * VEC <= STRIP and (N <= 2 * VEC or K * 16 * VEC > STRIP)"
grid   = ["min(max(SMS * BLOCKS // cdiv(N, 2 * VEC), 1), cdiv(2 * (M + W.nnz // 2), THREADS)) * cdiv(N, 2 * VEC)"]
block  = ["THREADS"]
shared = "K * 8 * VEC"
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "K",
          "ldx", "ldy", "W.nnz"]

[[launch]]
kernel = "global_8"
when   = "K * 8 * VEC > STRIP"
grid   = ["min(max(SMS * BLOCKS // cdiv(N, 8 * VEC), 1), cdiv(8 * (M + W.nnz // 2), THREADS)) * cdiv(N, 8 * VEC)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "K",
          "ldx", "ldy", "W.nnz"]

[params]
THREADS = { values = [256, 512, 1024],               default = 1024 }
VEC     = { values = [1, 2, 4, 8],                   default = 4 }
QUADS   = { values = [1, 2],                         default = 1 }       # fours of nonzeros that a team has in flight
BLOCKS  = { values = [1, 2, 4],                      default = 1 }       # of one SM
STRIP   = { values = [32768, 65536, 131072, 204800], default = 204800 }  # bytes of X that a block may hold
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

extern __shared__ __align__(16) unsigned char shared_bytes[];

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

// Four neighbouring nonzeros, read as whole vectors; those outside of begin .. end are none: column -1, value 0.
// Reading is apart from telling which are none, so that all are on their way before the first is looked at.
struct Quad {
    int at, k[4];
    float w[4];
    __device__ __forceinline__ void read(const in_t* values, const int* indices, int first, int end, int nnz) {
        at = first;
#pragma unroll
        for (int u = 0; u < 4; ++u) k[u] = -1, w[u] = 0.0f;
        if (at >= end) return;
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
    __device__ __forceinline__ void mask(int begin, int end) {
#pragma unroll
        for (int u = 0; u < 4; ++u)
            if (u < begin - at || u >= end - at) k[u] = -1, w[u] = 0.0f;
    }
};

// sums += the products of QUADS fours with VEC columns of X, whose rows are `stride` apart.
template <bool STRIP_OF_X>
__device__ __forceinline__ void add_products(float (&sums)[VEC], const Quad (&quads)[QUADS], const in_t* x_columns,
                                             int stride, int left, bool aligned) {
    float v[QUADS][4][VEC] = {};
#pragma unroll
    for (int q = 0; q < QUADS; ++q)
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            if (quads[q].k[u] < 0) continue;
            const in_t* x = x_columns + (STRIP_OF_X ? quads[q].k[u] * stride : int64_t(quads[q].k[u]) * stride);
            if (aligned) {
                if constexpr (STRIP_OF_X) {
                    constexpr int WIDTH = VEC * sizeof(in_t) <= 16 ? VEC : 16 / int(sizeof(in_t));
#pragma unroll
                    for (int c = 0; c < VEC; c += WIDTH) {
                        const evo::Vector<in_t, WIDTH> part = evo::load_vector<WIDTH>(x + c);
#pragma unroll
                        for (int i = 0; i < WIDTH; ++i) v[q][u][c + i] = evo::to_float(part.items[i]);
                    }
                } else {
                    evo::load_floats(v[q][u], x);
                }
            } else {
#pragma unroll
                for (int c = 0; c < VEC; ++c)
                    if (c < left) v[q][u][c] = evo::to_float(x[c]);
            }
        }
#pragma unroll
    for (int q = 0; q < QUADS; ++q)
#pragma unroll
        for (int u = 0; u < 4; ++u)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(quads[q].w[u], v[q][u][c], sums[c]);
}

// All rows of X, COLUMNS columns of it from n0 on, into shared memory; the copies are not awaited.
template <int COLUMNS>
__device__ __forceinline__ void copy_strip(in_t* strip, const in_t* x, int K, int N, int n0, int64_t ldx) {
    constexpr int ITEMS = 16 / int(sizeof(in_t));
    if (COLUMNS % ITEMS == 0 && N % ITEMS == 0) {
        constexpr int ACROSS = COLUMNS / ITEMS > 0 ? COLUMNS / ITEMS : 1;
        for (int i = threadIdx.x; i < K * ACROSS; i += THREADS) {
            const int k = i / ACROSS, c = i % ACROSS * ITEMS;
            if (n0 + c < N) evo::cp_async16(strip + k * COLUMNS + c, x + k * ldx + n0 + c);
        }
    } else {
        for (int i = threadIdx.x; i < K * COLUMNS; i += THREADS) {
            const int k = i / COLUMNS, c = i % COLUMNS;
            if (n0 + c < N) strip[k * COLUMNS + c] = __ldg(x + k * ldx + n0 + c);
        }
    }
    evo::cp_async_commit();
}

// A stored row, and which row of W it is.
struct Row {
    int begin = 0, end = 0, m = -1;
    __device__ __forceinline__ Row() {}
    __device__ __forceinline__ Row(const int* indptr, const int* row_order, int i, int M) {
        if (i < M) begin = __ldg(indptr + i), end = __ldg(indptr + i + 1), m = __ldg(row_order + i);
    }
};

// Largest power of two that is not above `value`, which is 1 at least.
__device__ __forceinline__ int power_below(int value) { return 1 << (31 - __clz(value)); }

// Teams of LANES lanes, VEC columns to each. A row has as many teams as there are for all rows, as its nonzeros are
// enough for; a warp's share of them at least, so that rows of unequal length even out. Rows are dealt to and fro,
// longest first, and what the next step needs of W is read during the one before.
template <int LANES, bool STRIP_OF_X>
__device__ __forceinline__ void rows_of_teams(const in_t* values, const int* indices, const int* indptr,
                                              const int* row_order, const in_t* x, out_t* y,
                                              const evo::Epilogue& epilogue, int M, int N, int K, int64_t ldx,
                                              int64_t ldy, int nnz) {
    constexpr int TEAMS = THREADS / LANES, WARPS = THREADS / 32, COLUMNS = LANES * VEC;
    __shared__ float warp_sums[WARPS][COLUMNS];
    const int strips = evo::cdiv(N, COLUMNS), blocks = gridDim.x / strips;
    const int n0 = blockIdx.x % strips * COLUMNS, block = blockIdx.x / strips;
    const int c0 = threadIdx.x % LANES * VEC, left = N - n0 - c0;
    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    in_t* strip = reinterpret_cast<in_t*>(shared_bytes);
    if constexpr (STRIP_OF_X) copy_strip<COLUMNS>(strip, x, K, N, n0, ldx);

    const int mean = max(nnz / M, 1), there = max(int(int64_t(blocks) * TEAMS / M), 1);
    int teams = max(power_below(there), min(32 / LANES, power_below(max(mean / 4, 1))));
    teams = min(min(teams, power_below(max(mean / 2, 1))), TEAMS);
    const int lanes = teams * LANES, wide = max(lanes, 32);  // to a row; that go on together
    const int units = THREADS / wide * blocks, together = wide / lanes, turns = evo::cdiv(M, units * together);
    const int own = threadIdx.x / wide * blocks + block, sub = threadIdx.x % wide / lanes;
    const auto row_of = [&](int turn) {
        const int unit = turn % 2 ? units - 1 - own : own;
        return Row(indptr, row_order, left > 0 && turn < turns ? (turn * units + unit) * together + sub : M, M);
    };
    const int first = 4 * (threadIdx.x / LANES % teams), step = 4 * teams;
    const auto after = [&](const Row& row, int at) { return row.end - at > step ? at + step : row.end; };
    const auto read = [&](Quad(&quads)[QUADS], const Row& row, int at) {
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            quads[q].read(values, indices, at, row.end, nnz);
            at = after(row, at);
        }
    };

    Row row = row_of(0), next = row_of(1);
    int at = (row.begin & ~3) + first;
    Quad quads[QUADS], coming[QUADS];
    read(quads, row, at);
    evo::cp_async_wait<0>();
    __syncthreads();
    for (int turn = 0; turn < turns; ++turn) {
        const Row later = row_of(turn + 2);
        float sums[VEC] = {};
        for (bool more = true; more;) {
            for (int q = 0; q < QUADS; ++q) at = after(row, at);
            more = __any_sync(0xffffffffu, at < row.end);
            if (!more) at = (next.begin & ~3) + first;
            read(coming, more ? row : next, at);
#pragma unroll
            for (int q = 0; q < QUADS; ++q) quads[q].mask(row.begin, row.end);
            add_products<STRIP_OF_X>(sums, quads, STRIP_OF_X ? strip + c0 : x + n0 + c0,
                                     STRIP_OF_X ? COLUMNS : int(ldx), left, aligned);
#pragma unroll
            for (int q = 0; q < QUADS; ++q) quads[q] = coming[q];
        }

        for (int distance = LANES; distance < 32 && distance < lanes; distance *= 2)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], distance);
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (lanes > 32) {  // the same for the whole block
            if (lane < LANES)
#pragma unroll
                for (int c = 0; c < VEC; ++c) warp_sums[warp][lane * VEC + c] = sums[c];
            __syncthreads();
            if (warp % (lanes / 32) == 0 && lane < LANES)
                for (int other = warp + 1; other < warp + lanes / 32; ++other)
#pragma unroll
                    for (int c = 0; c < VEC; ++c) sums[c] += warp_sums[other][lane * VEC + c];
            __syncthreads();
        }
        if (row.m >= 0 && threadIdx.x % lanes < LANES)
            store_y(sums, y, epilogue, row.m, n0 + c0, left, ldy, aligned);
        row = next;
        next = later;
    }
}

#define TEAMS_OF(NAME, LANES, STRIP_OF_X)                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                          \
    NAME##_##LANES(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x, \
                   out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N, int K,            \
                   int64_t ldx, int64_t ldy, int nnz) {                                                            \
        rows_of_teams<LANES, STRIP_OF_X>(values, indices, indptr, row_order, x, y,                                 \
                                         evo::Epilogue{bias, residual, scale}, M, N, K, ldx, ldy, nnz);            \
    }

TEAMS_OF(strip, 2, true)
TEAMS_OF(strip, 4, true)
TEAMS_OF(strip, 8, true)
TEAMS_OF(global, 8, false)
