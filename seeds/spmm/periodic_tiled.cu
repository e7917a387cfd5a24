/*---
about       = "Periodic SpMM: rows equal modulo the period share columns, a dense product with gathered rows of X"
format      = { name = "periodic", rows = "R", columns = "C" }
layouts     = ["row"]
constraints = [
    "BM % (4 * TM) == 0 and BN % (4 * TN) == 0",
    "(BM // TM) * (BN // TN) % 32 == 0 and (BM // TM) * (BN // TN) <= 1024",
    "8 * BK * (BM + BN + 8) <= 98304",
]

[[launch]]
kernel = "spmm"
grid   = ["min(R, M) * cdiv(cdiv(M, R), BM) * cdiv(N, BN)"]
block  = ["(BM // TM) * (BN // TN)"]
shared = "8 * BK * (BM + BN + 8)"
args   = ["W.values", "W.indices", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
R     = { values = [1, 2, 4, 8, 16, 32, 64],    default = 8 }   # the period along M
C     = { values = [8, 16, 32, 64, 128, 256],  default = 32 }  # and along K
BM    = { values = [16, 32, 64, 128], default = 64 }
BN    = { values = [16, 32, 64, 128], default = 64 }
BK    = { values = [8, 16, 32],       default = 16 }
TM    = { values = [4, 8],            default = 4 }  # a thread's rows, in groups of four neighbours
TN    = { values = [4, 8],            default = 4 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int THREADS = BM / TM * (BN / TN);
constexpr int VECTOR = 16 / sizeof(in_t);  // elements of one 16-byte load
constexpr int W_STRIDE = BM + 4, X_STRIDE = BN + 4, STAGE = BK * (W_STRIDE + X_STRIDE);  // floats

// COUNT neighbours as they are; those past `left` are 0.
template <int COUNT>
__device__ __forceinline__ evo::Vector<in_t, COUNT> load_part(const in_t* source, int left, bool aligned) {
    if (aligned && left >= COUNT) return evo::load_readonly<COUNT>(source);
    evo::Vector<in_t, COUNT> part;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) part.items[j] = j < left ? source[j] : evo::from_float<in_t>(0.0f);
    return part;
}

// The next BM x BK tile of stored values on its way to shared memory, where it is float[BK][W_STRIDE].
struct WTile {
    static constexpr int WIDTH = BK < VECTOR ? BK : VECTOR;
    static constexpr int ITEMS = BM * (BK / WIDTH), COUNT = (ITEMS + THREADS - 1) / THREADS;
    evo::Vector<in_t, WIDTH> held[COUNT];

    // `matrix`: rows x columns, row-major.
    __device__ __forceinline__ void fetch(const in_t* matrix, int row0, int k0, int rows, int columns, bool aligned) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int item = threadIdx.x + i * THREADS, k = k0 + item % (BK / WIDTH) * WIDTH;
            const int row = row0 + item / (BK / WIDTH);
            const bool inside = row < rows && (ITEMS % THREADS == 0 || item < ITEMS);
            held[i] = load_part<WIDTH>(matrix + int64_t(row) * columns + k, inside ? columns - k : 0, aligned);
        }
    }

    __device__ __forceinline__ void put(float* tile) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int item = threadIdx.x + i * THREADS;
            if (ITEMS % THREADS != 0 && item >= ITEMS) break;
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                tile[(item % (BK / WIDTH) * WIDTH + j) * W_STRIDE + item / (BK / WIDTH)] =
                    evo::to_float(held[i].items[j]);
        }
    }
};

// The BK rows of X that the tile meets, likewise: float[BK][X_STRIDE].
struct XTile {
    static constexpr int WIDTH = BN < VECTOR ? BN : VECTOR;
    static constexpr int ITEMS = BK * (BN / WIDTH), COUNT = (ITEMS + THREADS - 1) / THREADS;
    evo::Vector<in_t, WIDTH> held[COUNT];

    // `row_of(slot)`: the row of X, negative where there is none.
    template <typename RowOf>
    __device__ __forceinline__ void fetch(const in_t* x, int n0, int k0, int N, int64_t ldx, const RowOf& row_of) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int item = threadIdx.x + i * THREADS, n = n0 + item % (BN / WIDTH) * WIDTH;
            const bool mine = ITEMS % THREADS == 0 || item < ITEMS;
            const int k = mine ? row_of(k0 + item / (BN / WIDTH)) : -1;
            held[i] = load_part<WIDTH>(x + (k < 0 ? 0 : k * ldx) + n, k < 0 ? 0 : N - n, ldx % WIDTH == 0);
        }
    }

    __device__ __forceinline__ void put(float* tile) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int item = threadIdx.x + i * THREADS;
            if (ITEMS % THREADS != 0 && item >= ITEMS) break;
            float items[WIDTH];
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) items[j] = evo::to_float(held[i].items[j]);
            evo::store_items(tile + item / (BN / WIDTH) * X_STRIDE + item % (BN / WIDTH) * WIDTH, items);
        }
    }
};

// acc += matrix[row0 .., :] times the rows of X it meets, tile after tile; the next one is fetched meanwhile.
// A thread's rows are groups of four neighbours, BM * 4 / TM apart; so are its columns.
template <typename RowOf>
__device__ __forceinline__ void multiply(float (&acc)[TM][TN], const in_t* matrix, int row0, int rows, int columns,
                                         bool aligned, const in_t* x, int n0, int N, int64_t ldx,
                                         const RowOf& row_of) {
    extern __shared__ __align__(16) float shared[];  // two stages of a W tile and an X tile
    const int row = threadIdx.x % (BM / TM) * 4, column = threadIdx.x / (BM / TM) * 4;
    const int steps = evo::cdiv(columns, BK);
    WTile w_tile;
    XTile x_tile;
    w_tile.fetch(matrix, row0, 0, rows, columns, aligned);
    x_tile.fetch(x, n0, 0, N, ldx, row_of);
    w_tile.put(shared);
    x_tile.put(shared + BK * W_STRIDE);
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        const float* w_now = shared + step % 2 * STAGE;
        const float* x_now = w_now + BK * W_STRIDE;
        if (step + 1 < steps) {
            w_tile.fetch(matrix, row0, (step + 1) * BK, rows, columns, aligned);
            x_tile.fetch(x, n0, (step + 1) * BK, N, ldx, row_of);
        }
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float w[TM], v[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                *reinterpret_cast<float4*>(w + i) =
                    *reinterpret_cast<const float4*>(w_now + k * W_STRIDE + row + i * (BM / TM));
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                *reinterpret_cast<float4*>(v + j) =
                    *reinterpret_cast<const float4*>(x_now + k * X_STRIDE + column + j * (BN / TN));
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(w[i], v[j], acc[i][j]);
        }
        if (step + 1 < steps) {
            float* next = shared + (step + 1) % 2 * STAGE;
            w_tile.put(next);
            x_tile.put(next + BK * W_STRIDE);
        }
        __syncthreads();
    }
}

// Stores a thread's sums; `target_of(row)`: the row of Y for a stored row, negative where there is none.
template <typename TargetOf>
__device__ __forceinline__ void store_sums(const float (&acc)[TM][TN], out_t* y, const evo::Epilogue& epilogue,
                                           int row0, int n0, int N, int64_t ldy, const TargetOf& target_of) {
    const int row = threadIdx.x % (BM / TM) * 4, column = threadIdx.x / (BM / TM) * 4;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int m = target_of(row0 + row + i / 4 * 4 * (BM / TM) + i % 4);
        if (m < 0) continue;
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int n = n0 + column + j * (BN / TN), left = N - n;
            const int64_t at = evo::y_index(m, n, ldy);
            evo::Vector<out_t, 4> four;
#pragma unroll
            for (int e = 0; e < 4; ++e)
                four.items[e] = e < left ? epilogue(acc[i][j + e], m, at + e) : evo::from_float<out_t>(0.0f);
            if (left >= 4 && ldy % 4 == 0) {
                evo::store_vector(y + at, four);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (e < left) y[at + e] = four.items[e];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const int* indices, const int* indptr, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    // Tiles of the same rows of the pattern follow one another: they gather the same rows of X.
    const int periods = evo::cdiv(M, R), across = evo::cdiv(K, C), tiles_m = evo::cdiv(periods, BM);
    const int tile = blockIdx.x % tiles_m, g = blockIdx.x / tiles_m % min(R, M);
    const int row0 = tile * BM, n0 = blockIdx.x / tiles_m / min(R, M) * BN;
    const int begin = __ldg(indptr + g), count = __ldg(indptr + g + 1) - begin, columns = across * count;
    const int* own = indices + begin;
    const int64_t first = int64_t(begin) * periods * across;

    float acc[TM][TN] = {};
    multiply(acc, values + first, row0, periods, columns, columns % WTile::WIDTH == 0 && first % WTile::WIDTH == 0, x,
             n0, N, ldx, [own, count, columns, K](int slot) {
                 const int k = slot < columns ? slot / count * C + __ldg(own + slot % count) : K;
                 return k < K ? k : -1;
             });
    store_sums(acc, y, evo::Epilogue{bias, residual, scale}, row0, n0, N, ldy, [g, M](int row) {
        const int m = row * R + g;
        return m < M ? m : -1;
    });
}
