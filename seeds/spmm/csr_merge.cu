/*---
about       = "CSR SpMM along the merge path: equal shares of nonzeros and row ends to teams of TX threads"
format      = { name = "csr", order = "ORDER" }
layouts     = ["row"]

[[workspace]]
name  = "heads"
bytes = "4 * N * cdiv(M + W.nnz, SHARE * (1 + 7 * (W.nnz > LARGE)))"

[[workspace]]
name  = "tails"
bytes = "4 * N * cdiv(M + W.nnz, SHARE * (1 + 7 * (W.nnz > LARGE)))"

[[launch]]
kernel = "spmm"
when   = "W.nnz <= LARGE"
grid   = ["cdiv(cdiv(M + W.nnz, SHARE), THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "W.diagonals", "X", "Y", "heads", "tails", "bias",
          "residual", "scale", "M", "N", "ldx", "ldy", "W.nnz"]

[[launch]]
kernel = "spmm"
when   = "W.nnz > LARGE"
grid   = ["cdiv(cdiv(M + W.nnz, 8 * SHARE), THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "W.diagonals", "X", "Y", "heads", "tails", "bias",
          "residual", "scale", "M", "N", "ldx", "ldy", "W.nnz"]

[[launch]]
kernel = "join"
when   = "M + W.nnz > SHARE and W.nnz <= LARGE"
grid   = ["cdiv(cdiv(M + W.nnz, SHARE), THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.indptr", "W.row_order", "W.diagonals", "Y", "heads", "tails", "bias", "residual", "scale", "M", "N", "ldy",
          "W.nnz"]

[[launch]]
kernel = "join"
when   = "W.nnz > LARGE"
grid   = ["cdiv(cdiv(M + W.nnz, 8 * SHARE), THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.indptr", "W.row_order", "W.diagonals", "Y", "heads", "tails", "bias", "residual", "scale", "M", "N", "ldy",
          "W.nnz"]

[params]
THREADS = { values = [64, 128, 256, 512],      default = 128 }
TX      = { values = [4, 8, 16, 32],           default = 32 }  # lanes along the columns, fewer where N is small
VEC     = { values = [1, 2, 4, 8],             default = 4 }
SHARE   = { values = [64, 128, 256, 512],      default = 64 }  # steps of a team: multiples of the format's 64
LARGE   = { values = [1000, 1000000, 4000000], default = 4000000 }  # eight times as many beyond so many nonzeros
UNROLL  = { values = [1, 2, 4],                default = 4 }
ORDER   = { values = [0, 1, 2],                default = 0 }  # rows as they are, the longest first, alike together
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

// Merge-based SpMM (Yang, Buluc, Owens: Design Principles for Sparse Matrix Multiplication on the GPU, Euro-Par 2018).
// Rows that cross shares are joined by a second kernel, always in the same order.

// Steps of a team: many where W is large, so that what crosses shares stays small beside it.
__device__ __forceinline__ int steps_of(int nnz) { return nnz > LARGE ? 8 * SHARE : SHARE; }

// Steps d0 .. d1 of the path: nonzeros k0 .. k1, ends of stored rows r0 .. r1.
struct Share {
    int r0, r1, k0, k1;
    __device__ __forceinline__ Share(const int* diagonals, int share, int M, int nnz) {
        const int64_t total = int64_t(M) + nnz, d0 = int64_t(share) * steps_of(nnz);
        const int64_t d1 = min(d0 + steps_of(nnz), total);
        r0 = __ldg(diagonals + d0 / 64);
        r1 = d1 == total ? M : __ldg(diagonals + d1 / 64);
        k0 = int(d0 - r0), k1 = int(d1 - r1);
    }
};

// Adds the products of nonzeros at .. end.
__device__ __forceinline__ void add_products(float (&sums)[VEC], const in_t* values, const int* indices,
                                             const in_t* x_columns, int at, int end, int left, bool aligned,
                                             int64_t ldx) {
    for (; at < end; at += UNROLL) {
        int k[UNROLL];  // all before any row of X, whose reads would else wait one for the other
        float w[UNROLL], v[UNROLL][VEC];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const bool inside = at + u < end;
            k[u] = inside ? __ldg(indices + at + u) : -1;
            w[u] = inside ? evo::to_float(__ldg(values + at + u)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            load_x(v[u], x_columns + (k[u] < 0 ? 0 : k[u] * ldx), k[u] < 0 ? 0 : left, aligned);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int c = 0; c < VEC; ++c) sums[c] = fmaf(w[u], v[u][c], sums[c]);
    }
}

__device__ __forceinline__ void keep(float* target, const float (&sums)[VEC], int left) {
#pragma unroll
    for (int c = 0; c < VEC; ++c)
        if (c < left) target[c] = sums[c];
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const int* indices, const int* indptr, const int* row_order, const int* diagonals,
     const in_t* x, out_t* y, float* heads, float* tails, const in_t* bias, const out_t* residual, float scale, int M,
     int N, int64_t ldx, int64_t ldy, int nnz) {
    const int shares = int(evo::cdiv<int64_t>(int64_t(M) + nnz, steps_of(nnz)));
    const int tiles = evo::cdiv<int>(shares, blockDim.y);
    const int number = blockIdx.x % tiles * blockDim.y + threadIdx.y;
    const int n = (blockIdx.x / tiles * blockDim.x + threadIdx.x) * VEC, left = N - n;
    if (number >= shares || left <= 0) return;

    const Share share(diagonals, number, M, nnz);
    const evo::Epilogue epilogue{bias, residual, scale};
    const bool aligned = N % VEC == 0;  // rows of X and Y are N long
    int at = share.k0;
    for (int row = share.r0; row < share.r1; ++row) {
        const int end = __ldg(indptr + row + 1);
        float sums[VEC] = {};
        add_products(sums, values, indices, x + n, at, end, left, aligned, ldx);
        at = end;
        if (row == share.r0 && __ldg(indptr + row) < share.k0)  // it began in an earlier share
            keep(heads + int64_t(number) * N + n, sums, left);
        else
            store_y(sums, y, epilogue, __ldg(row_order + row), n, left, ldy, aligned);
    }
    if (at < share.k1) {
        float sums[VEC] = {};
        add_products(sums, values, indices, x + n, at, share.k1, left, aligned, ldx);
        keep(tails + int64_t(number) * N + n, sums, left);
    }
}

// A team for each share: the row that began before it and ended in it.
extern "C" __global__ void __launch_bounds__(THREADS)
join(const int* indptr, const int* row_order, const int* diagonals, out_t* y, const float* heads, const float* tails,
     const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldy, int nnz) {
    const int shares = int(evo::cdiv<int64_t>(int64_t(M) + nnz, steps_of(nnz)));
    const int tiles = evo::cdiv<int>(shares, blockDim.y);
    const int number = blockIdx.x % tiles * blockDim.y + threadIdx.y;
    const int n = (blockIdx.x / tiles * blockDim.x + threadIdx.x) * VEC, left = N - n;
    if (number >= shares || left <= 0) return;
    const Share share(diagonals, number, M, nnz);
    if (share.r0 == share.r1) return;
    const int begin = __ldg(indptr + share.r0);
    if (begin >= share.k0) return;

    float sums[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) sums[c] = c < left ? heads[int64_t(number) * N + n + c] : 0.0f;
#pragma unroll 4
    for (int other = (begin + share.r0) / steps_of(nnz); other < number; ++other)
#pragma unroll
        for (int c = 0; c < VEC; ++c)
            if (c < left) sums[c] += tails[int64_t(other) * N + n + c];
    store_y(sums, y, evo::Epilogue{bias, residual, scale}, __ldg(row_order + share.r0), n, left, ldy, N % VEC == 0);
}
