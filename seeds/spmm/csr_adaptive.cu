/*---
about   = "CSR SpMM whose teams suit N and the mean row length: lanes for the columns, more teams for long rows"
format  = { name = "csr", order = "ORDER" }
layouts = ["row"]

[[launch]]
kernel = "spmm_1"
when   = "N <= VEC"
grid   = ["cdiv(M * (1 + 3 * (W.nnz > 4 * SHARE * M) + 28 * (W.nnz > 32 * SHARE * M)), THREADS) * cdiv(N, VEC)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy", "W.nnz"]

[[launch]]
kernel = "spmm_2"
when   = "N > VEC and N <= 2 * VEC"
grid   = ["cdiv(M * (1 + 3 * (W.nnz > 4 * SHARE * M) + 12 * (W.nnz > 16 * SHARE * M)), THREADS//2) * cdiv(N, 2*VEC)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy", "W.nnz"]

[[launch]]
kernel = "spmm_4"
when   = "N > 2 * VEC and N <= 4 * VEC"
grid   = ["cdiv(M * (1 + 3 * (W.nnz > 4 * SHARE * M) + 4 * (W.nnz > 8 * SHARE * M)), THREADS // 4) * cdiv(N, 4 * VEC)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy", "W.nnz"]

[[launch]]
kernel = "spmm_8"
when   = "N > 4 * VEC"
grid   = ["cdiv(M * (1 + 3 * (W.nnz > 4 * SHARE * M)), THREADS // 8) * cdiv(N, 8 * VEC)"]
block  = ["THREADS"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx",
          "ldy", "W.nnz"]

[params]
THREADS = { values = [64, 128, 256, 512], default = 128 }
VEC     = { values = [1, 2, 4, 8],        default = 4 }
SHARE   = { values = [1, 2, 4, 8, 16],    default = 2 }  # nonzeros a lane should have of a mean row, at least
UNROLL  = { values = [1, 2, 4],           default = 4 }
ORDER   = { values = [0, 1, 2],           default = 0 }  # rows as they are, the longest first, alike together
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

// region: x_row(x, left, aligned: v)
// COUNT neighbours of a row of X as floats; the columns past `left` are 0. Whole vectors where rows are aligned.
template <int COUNT>
__device__ __forceinline__ void load_x(float (&v)[COUNT], const in_t* x, int left, bool aligned) {
    if (aligned && left >= COUNT) {
        evo::load_floats(v, x);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) v[i] = i < left ? evo::to_float(x[i]) : 0.0f;
    }
}
// endregion

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

// Eight lanes read whole lines of X where VEC is 16 bytes; wider teams would leave less to run side by side.
// Teams of LANES lanes, VEC columns to each; to a row one team, four or a whole warp of them, as long as each has at
// least SHARE nonzeros of a mean row.
template <int LANES>
__device__ __forceinline__ void row_of_teams(const in_t* values, const int* indices, const int* indptr,
                                             const int* row_order, const in_t* x, out_t* y,
                                             const evo::Epilogue& epilogue, int M, int N, int64_t ldx, int64_t ldy,
                                             int nnz) {
    constexpr int MOST = 32 / LANES, FEW = MOST < 4 ? MOST : 4;
    int teams = 1;  // to a row; as the grid has it
    if (nnz > int64_t(FEW) * SHARE * M) teams = FEW;
    if (nnz > int64_t(MOST) * SHARE * M) teams = MOST;
    const int tiles_m = int(evo::cdiv<int64_t>(int64_t(M) * teams, THREADS / LANES));
    const int team = blockIdx.x % tiles_m * (THREADS / LANES) + threadIdx.x / LANES;
    const int i = team / teams, part = team % teams;  // stored row; which of its teams
    const int n = (blockIdx.x / tiles_m * LANES + threadIdx.x % LANES) * VEC, left = N - n;
    const bool mine = i < M && left > 0;  // all stay: shuffles take whole warps

    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    const int end = mine ? __ldg(indptr + i + 1) : 0, m = mine ? __ldg(row_order + i) : 0;
    const in_t* x_columns = x + n;
    float sums[VEC] = {};
    int at = (mine ? __ldg(indptr + i) : 0) + part;
    for (; at < end; at += UNROLL * teams) {
        int k[UNROLL];  // all before any row of X, whose reads would else wait one for the other
        float w[UNROLL], v[UNROLL][VEC];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const bool inside = at + u * teams < end;
            k[u] = inside ? __ldg(indices + at + u * teams) : -1;
            w[u] = inside ? evo::to_float(__ldg(values + at + u * teams)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            load_x(v[u], x_columns + (k[u] < 0 ? 0 : k[u] * ldx), k[u] < 0 ? 0 : left, aligned);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
    }
    for (int distance = LANES; distance < teams * LANES; distance *= 2)
#pragma unroll
        for (int c = 0; c < VEC; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], distance);
    if (mine && part == 0) store_y(sums, y, epilogue, m, n, left, ldy, aligned);
}

#define TEAMS(LANES)                                                                                               \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                          \
    spmm_##LANES(const in_t* values, const int* indices, const int* indptr, const int* row_order, const in_t* x,   \
                 out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldx,        \
                 int64_t ldy, int nnz) {                                                                           \
        row_of_teams<LANES>(values, indices, indptr, row_order, x, y, evo::Epilogue{bias, residual, scale}, M, N,  \
                            ldx, ldy, nnz);                                                                        \
    }

TEAMS(1)
TEAMS(2)
TEAMS(4)
TEAMS(8)
