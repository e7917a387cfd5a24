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
VEC     = { values = [2, 4, 8],                      default = 4 }
FOURS   = { values = [1, 2, 4],                      default = 4 }       # fours of nonzeros that a team has in flight
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

// sums += COUNT nonzeros times VEC columns of X, whose rows are `stride` apart; column -1 is none.
template <bool STRIP_OF_X, int COUNT>
__device__ __forceinline__ void add_products(float (&sums)[VEC], const float (&w)[COUNT], const int (&k)[COUNT],
                                             const in_t* x_columns, int stride, int left, bool aligned) {
    float v[COUNT][VEC] = {};
#pragma unroll
    for (int u = 0; u < COUNT; ++u) {
        if (COUNT == 1 && k[u] < 0) continue;
        if constexpr (STRIP_OF_X) {  // filled up with zeros
            constexpr int WIDTH = VEC * sizeof(in_t) <= 16 ? VEC : 16 / int(sizeof(in_t));
#pragma unroll
            for (int c = 0; c < VEC; c += WIDTH) {
                const evo::Vector<in_t, WIDTH> part = evo::load_vector<WIDTH>(x_columns + k[u] * stride + c);
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) v[u][c + i] = evo::to_float(part.items[i]);
            }
        } else if (aligned) {
            evo::load_floats(v[u], x_columns + int64_t(k[u]) * stride);
        } else {
#pragma unroll
            for (int c = 0; c < VEC; ++c)
                if (c < left) v[u][c] = evo::to_float(__ldg(x_columns + int64_t(k[u]) * stride + c));
        }
    }
#pragma unroll
    for (int u = 0; u < COUNT; ++u)
#pragma unroll
        for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
}

// All rows of X, COLUMNS columns of it from n0 on, into shared memory; the copies are not awaited.
template <int COLUMNS>
__device__ __forceinline__ void copy_strip(in_t* strip, const in_t* x, int K, int N, int n0, int64_t ldx) {
    constexpr int ITEMS = 16 / int(sizeof(in_t)), ACROSS = COLUMNS / ITEMS > 0 ? COLUMNS / ITEMS : 1;
    if (COLUMNS % ITEMS == 0 && N % ITEMS == 0) {
        for (int i = threadIdx.x; i < K * ACROSS; i += THREADS) {
            const int k = i / ACROSS, c = i % ACROSS * ITEMS;
            const bool inside = n0 + c < N;
            evo::cp_async16_zfill(strip + k * COLUMNS + c, inside ? x + k * ldx + n0 + c : x, inside ? 16 : 0);
        }
    } else {
        for (int i = threadIdx.x; i < K * COLUMNS; i += THREADS) {
            const int k = i / COLUMNS, c = i % COLUMNS;
            strip[i] = n0 + c < N ? __ldg(x + k * ldx + n0 + c) : evo::from_float<in_t>(0.0f);
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

// Largest power of two that is not above `value`, which is 1 at least; of a power of two, its logarithm.
__device__ __forceinline__ int log_of(int value) { return 31 - __clz(value); }
__device__ __forceinline__ int power_below(int value) { return 1 << log_of(value); }

// Teams of LANES lanes, VEC columns to each. A row has as many teams as there are for all rows, as its nonzeros are
// enough for; a warp's share of them at least, so that rows of unequal length even out. Rows are dealt to and fro,
// longest first. Nonzeros are read in aligned fours, those before and after them one by one.
template <int LANES, bool STRIP_OF_X>
__device__ __forceinline__ void rows_of_teams(const in_t* values, const int* indices, const int* indptr,
                                              const int* row_order, const in_t* x, out_t* y,
                                              const evo::Epilogue& epilogue, int M, int N, int K, int64_t ldx,
                                              int64_t ldy, int nnz) {
    constexpr int TEAMS = THREADS / LANES, WARPS = THREADS / 32, COLUMNS = LANES * VEC;
    __shared__ float warp_sums[WARPS][COLUMNS];
    const int strips = evo::cdiv(N, COLUMNS), blocks = gridDim.x / strips, block = blockIdx.x / strips;
    const int n0 = (blockIdx.x - block * strips) * COLUMNS;
    const int c0 = threadIdx.x % LANES * VEC, left = N - n0 - c0;
    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    in_t* strip = reinterpret_cast<in_t*>(shared_bytes);
    if constexpr (STRIP_OF_X) copy_strip<COLUMNS>(strip, x, K, N, n0, ldx);

    const int mean = max(nnz / M, 1), there = max(blocks * TEAMS / M, 1);
    int teams = max(power_below(there), min(32 / LANES, power_below(max(mean / 4, 1))));
    teams = min(min(teams, power_below(max(mean / 2, 1))), TEAMS);
    const int lanes = teams * LANES, wide = max(lanes, 32);  // to a row; that go on together
    const int units = (THREADS >> log_of(wide)) * blocks, together = wide >> log_of(lanes);
    const int turns = evo::cdiv(M, units * together), own = (threadIdx.x >> log_of(wide)) * blocks + block;
    const int sub = (threadIdx.x & (wide - 1)) >> log_of(lanes), team = threadIdx.x / LANES & (teams - 1);
    constexpr int DEEP = STRIP_OF_X || FOURS < 2 ? FOURS : 2;  // rows of X out of global memory wait in registers
    const auto row_of = [&](int turn) {
        const int unit = turn % 2 ? units - 1 - own : own;
        return Row(indptr, row_order, left > 0 && turn < turns ? (turn * units + unit) * together + sub : M, M);
    };
    const in_t* x_columns = STRIP_OF_X ? strip + c0 : x + n0 + c0;
    const int stride = STRIP_OF_X ? COLUMNS : int(ldx);

    Row row = row_of(0);
    evo::cp_async_wait<0>();
    __syncthreads();
    for (int turn = 0; turn < turns; ++turn) {
        const Row next = row_of(turn + 1);
        const int before = min(-row.begin & 3, row.end - row.begin);  // nonzeros in front of the first aligned four
        const int first = row.begin + before, fours = (row.end - first) / 4;
        const int odd = row.end - row.begin - 4 * fours;  // that are in no four
        const auto place = [&](int number) { return row.begin + number + (number < before ? 0 : 4 * fours); };
        float sums[VEC] = {}, odd_w[1] = {};
        int odd_k[1] = {-1};
        if (team < odd) odd_k[0] = __ldg(indices + place(team)), odd_w[0] = evo::to_float(__ldg(values + place(team)));
        int four = team;
        for (; four + (DEEP - 1) * teams < fours; four += DEEP * teams) {
            evo::Vector<int, 4> k[DEEP];
            float w[DEEP][4];
            int known = 0;
#pragma unroll
            for (int f = 0; f < DEEP; ++f) {
                k[f] = evo::load_readonly<4>(indices + first + 4 * (four + f * teams));
                evo::load_floats(w[f], values + first + 4 * (four + f * teams));
                known |= k[f].items[0];
            }
            if (known < 0) break;  // never: but no row of X is read before all these reads are on their way
#pragma unroll
            for (int f = 0; f < DEEP; ++f)
                add_products<STRIP_OF_X, 4>(sums, w[f], k[f].items, x_columns, stride, left, aligned);
        }
        for (; four < fours; four += teams) {
            const evo::Vector<int, 4> k = evo::load_readonly<4>(indices + first + 4 * four);
            float w[4];
            evo::load_floats(w, values + first + 4 * four);
            add_products<STRIP_OF_X, 4>(sums, w, k.items, x_columns, stride, left, aligned);
        }
        for (int number = team; number < odd; number += teams) {
            if (number != team) {
                odd_k[0] = __ldg(indices + place(number));
                odd_w[0] = evo::to_float(__ldg(values + place(number)));
            }
            add_products<STRIP_OF_X, 1>(sums, odd_w, odd_k, x_columns, stride, left, aligned);
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
            if ((warp & (lanes / 32 - 1)) == 0 && lane < LANES)
                for (int other = warp + 1; other < warp + lanes / 32; ++other)
#pragma unroll
                    for (int c = 0; c < VEC; ++c) sums[c] += warp_sums[other][lane * VEC + c];
            __syncthreads();
        }
        if (row.m >= 0 && (threadIdx.x & (lanes - 1)) < LANES)
            store_y(sums, y, epilogue, row.m, n0 + c0, left, ldy, aligned);
        row = next;
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
