/*---
about       = "COO SpMM: equal shares of nonzeros; a team of TX threads adds up runs of a row, atomic at the ends only"
format      = { name = "coo", order = "row" }
layouts     = ["row"]
atomics     = true

[[workspace]]
name  = "sums"
bytes = "4 * M * N"
init  = "zero"

[[launch]]
kernel = "segments"
when   = "W.nnz > 0"
grid   = ["cdiv(cdiv(W.nnz, SHARE), THREADS // min(TX, cdiv(N, VEC))) * cdiv(N, min(TX, cdiv(N, VEC)) * VEC)"]
block  = ["min(TX, cdiv(N, VEC))", "THREADS // min(TX, cdiv(N, VEC))"]
args   = ["W.values", "W.rows", "W.indices", "X", "sums", "N", "ldx", "W.nnz"]

[[launch]]
kernel = "finish"
grid   = ["cdiv(M * cdiv(N, 4), 256)"]
block  = ["256"]
args   = ["sums", "Y", "bias", "residual", "scale", "M", "N", "ldy"]

[params]
THREADS = { values = [64, 128, 256, 512],    default = 128 }
TX      = { values = [4, 8, 16, 32],         default = 8 }  # lanes along the columns, fewer where N is small
VEC     = { values = [1, 2, 4, 8],           default = 4 }
SHARE   = { values = [16, 32, 64, 128, 256], default = 64 }  # nonzeros of a team
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

// The sum of a run goes to its row. Only the first and the last run of a share may go on in another.
__device__ __forceinline__ void flush(float (&run)[VEC], float* target, int left, bool shared) {
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
        if (c < left) {
            if (shared)
                atomicAdd(target + c, run[c]);
            else
                target[c] = run[c];
        }
        run[c] = 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
segments(const in_t* values, const int* rows, const int* indices, const in_t* x, float* sums, int N, int64_t ldx,
         int nnz) {
    const int tiles = evo::cdiv<int>(evo::cdiv(nnz, SHARE), blockDim.y);
    const int begin = (blockIdx.x % tiles * blockDim.y + threadIdx.y) * SHARE, end = min(begin + SHARE, nnz);
    const int n = (blockIdx.x / tiles * blockDim.x + threadIdx.x) * VEC, left = N - n;
    if (begin >= nnz || left <= 0) return;

    const bool aligned = N % VEC == 0;  // rows of X are N long
    int row = __ldg(rows + begin);
    bool first = true;
    float run[VEC] = {};
    for (int base = begin; base < end; base += 4) {
        int r[4], k[4];  // all before any row of X, whose reads would else wait one for the other
        float w[4], v[4][VEC];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const bool inside = base + u < end;
            r[u] = inside ? __ldg(rows + base + u) : -1;
            k[u] = inside ? __ldg(indices + base + u) : 0;
            w[u] = inside ? evo::to_float(__ldg(values + base + u)) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) load_x(v[u], x + k[u] * ldx + n, r[u] < 0 ? 0 : left, aligned);
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            if (r[u] >= 0 && r[u] != row) {
                flush(run, sums + int64_t(row) * N + n, left, first);
                first = false;
                row = r[u];
            }
#pragma unroll
            for (int c = 0; c < VEC; ++c) run[c] = fmaf(w[u], v[u][c], run[c]);
        }
    }
    flush(run, sums + int64_t(row) * N + n, left, true);
}

// The epilogue on the finished sums, COUNT neighbours of a row of Y to a thread.
extern "C" __global__ void __launch_bounds__(256)
finish(const float* sums, out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldy) {
    const int64_t item = int64_t(blockIdx.x) * 256 + threadIdx.x, across = evo::cdiv(N, 4);
    const int m = int(item / across), n = int(item % across) * 4;
    if (m >= M) return;
    float four[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) four[c] = n + c < N ? sums[int64_t(m) * N + n + c] : 0.0f;
    store_y(four, y, evo::Epilogue{bias, residual, scale}, m, n, N - n, ldy, N % 4 == 0);
}
