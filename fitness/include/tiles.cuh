// tiles.cuh: dense rows of stored values times the rows of X that they meet, in tiles on the FMA units (X, Y by rows).
// evo::Tiles<BM, BN, BK, TM, TN>: the THREADS threads of a block make BM x BN sums, TM x TN each, with multiply and
// store_sums, in 8 * BK * (BM + BN + 8) bytes of dynamic shared memory.
#pragma once
#include "task.cuh"

namespace evo {

// COUNT neighbours as they are; those past `left` are 0.
template <int COUNT>
__device__ __forceinline__ Vector<in_t, COUNT> load_part(const in_t* source, int left, bool aligned) {
    if (aligned && left >= COUNT) return load_readonly<COUNT>(source);
    Vector<in_t, COUNT> part;
#pragma unroll
    for (int j = 0; j < COUNT; ++j) part.items[j] = j < left ? source[j] : from_float<in_t>(0.0f);
    return part;
}

template <int TILE_M, int TILE_N, int TILE_K, int OWN_M, int OWN_N>
struct Tiles {
    static constexpr int THREADS = TILE_M / OWN_M * (TILE_N / OWN_N);
    static constexpr int VECTOR = 16 / sizeof(in_t);  // elements of one 16-byte load
    static constexpr int W_STRIDE = TILE_M + 4, X_STRIDE = TILE_N + 4;  // floats
    static constexpr int STAGE = TILE_K * (W_STRIDE + X_STRIDE);

    // The next TILE_M x TILE_K tile of stored values on its way to shared memory, where it is float[TILE_K][W_STRIDE].
    struct WTile {
        static constexpr int WIDTH = TILE_K < VECTOR ? TILE_K : VECTOR;
        static constexpr int ITEMS = TILE_M * (TILE_K / WIDTH), COUNT = (ITEMS + THREADS - 1) / THREADS;
        Vector<in_t, WIDTH> held[COUNT];

        // `matrix`: rows x columns, row-major.
        __device__ __forceinline__ void fetch(const in_t* matrix, int row0, int k0, int rows, int columns,
                                              bool aligned) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const int item = threadIdx.x + i * THREADS, k = k0 + item % (TILE_K / WIDTH) * WIDTH;
                const int row = row0 + item / (TILE_K / WIDTH);
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
                    tile[(item % (TILE_K / WIDTH) * WIDTH + j) * W_STRIDE + item / (TILE_K / WIDTH)] =
                        to_float(held[i].items[j]);
            }
        }
    };

    // The TILE_K rows of X that the tile meets, likewise: float[TILE_K][X_STRIDE].
    struct XTile {
        static constexpr int WIDTH = TILE_N < VECTOR ? TILE_N : VECTOR;
        static constexpr int ITEMS = TILE_K * (TILE_N / WIDTH), COUNT = (ITEMS + THREADS - 1) / THREADS;
        Vector<in_t, WIDTH> held[COUNT];

        // `row_of(slot)`: the row of X, negative where there is none.
        template <typename RowOf>
        __device__ __forceinline__ void fetch(const in_t* x, int n0, int k0, int N, int64_t ldx, const RowOf& row_of) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const int item = threadIdx.x + i * THREADS, n = n0 + item % (TILE_N / WIDTH) * WIDTH;
                const bool mine = ITEMS % THREADS == 0 || item < ITEMS;
                const int k = mine ? row_of(k0 + item / (TILE_N / WIDTH)) : -1;
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
                for (int j = 0; j < WIDTH; ++j) items[j] = to_float(held[i].items[j]);
                store_items(tile + item / (TILE_N / WIDTH) * X_STRIDE + item % (TILE_N / WIDTH) * WIDTH, items);
            }
        }
    };

    // acc += matrix[row0 .., :] times the rows of X it meets, tile after tile; the next one is fetched meanwhile.
    // A thread's rows are groups of four neighbours, TILE_M * 4 / OWN_M apart; so are its columns.
    template <typename RowOf>
    static __device__ __forceinline__ void multiply(float (&acc)[OWN_M][OWN_N], const in_t* matrix, int row0, int rows,
                                                    int columns, bool aligned, const in_t* x, int n0, int N,
                                                    int64_t ldx, const RowOf& row_of) {
        extern __shared__ __align__(16) float shared[];  // two stages of a W tile and an X tile
        const int row = threadIdx.x % (TILE_M / OWN_M) * 4, column = threadIdx.x / (TILE_M / OWN_M) * 4;
        const int steps = cdiv(columns, TILE_K);
        WTile w_tile;
        XTile x_tile;
        w_tile.fetch(matrix, row0, 0, rows, columns, aligned);
        x_tile.fetch(x, n0, 0, N, ldx, row_of);
        w_tile.put(shared);
        x_tile.put(shared + TILE_K * W_STRIDE);
        __syncthreads();
        for (int step = 0; step < steps; ++step) {
            const float* w_now = shared + step % 2 * STAGE;
            const float* x_now = w_now + TILE_K * W_STRIDE;
            if (step + 1 < steps) {
                w_tile.fetch(matrix, row0, (step + 1) * TILE_K, rows, columns, aligned);
                x_tile.fetch(x, n0, (step + 1) * TILE_K, N, ldx, row_of);
            }
#pragma unroll
            for (int k = 0; k < TILE_K; ++k) {
                float w[OWN_M], v[OWN_N];
#pragma unroll
                for (int i = 0; i < OWN_M; i += 4)
                    *reinterpret_cast<float4*>(w + i) =
                        *reinterpret_cast<const float4*>(w_now + k * W_STRIDE + row + i * (TILE_M / OWN_M));
#pragma unroll
                for (int j = 0; j < OWN_N; j += 4)
                    *reinterpret_cast<float4*>(v + j) =
                        *reinterpret_cast<const float4*>(x_now + k * X_STRIDE + column + j * (TILE_N / OWN_N));
#pragma unroll
                for (int i = 0; i < OWN_M; ++i)
#pragma unroll
                    for (int j = 0; j < OWN_N; ++j) acc[i][j] = fmaf(w[i], v[j], acc[i][j]);
            }
            if (step + 1 < steps) {
                float* next = shared + (step + 1) % 2 * STAGE;
                w_tile.put(next);
                x_tile.put(next + TILE_K * W_STRIDE);
            }
            __syncthreads();
        }
    }

    // Stores a thread's sums; `target_of(row)`: the row of Y for a stored row, negative where there is none.
    template <typename TargetOf>
    static __device__ __forceinline__ void store_sums(const float (&acc)[OWN_M][OWN_N], out_t* y,
                                                      const Epilogue& epilogue, int row0, int n0, int N, int64_t ldy,
                                                      const TargetOf& target_of) {
        const int row = threadIdx.x % (TILE_M / OWN_M) * 4, column = threadIdx.x / (TILE_M / OWN_M) * 4;
#pragma unroll
        for (int i = 0; i < OWN_M; ++i) {
            const int m = target_of(row0 + row + i / 4 * 4 * (TILE_M / OWN_M) + i % 4);
            if (m < 0) continue;
#pragma unroll
            for (int j = 0; j < OWN_N; j += 4) {
                const int n = n0 + column + j * (TILE_N / OWN_N), left = N - n;
                const int64_t at = y_index(m, n, ldy);
                Vector<out_t, 4> four;
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    four.items[e] = e < left ? epilogue(acc[i][j + e], m, at + e) : from_float<out_t>(0.0f);
                if (left >= 4 && ldy % 4 == 0) {
                    store_vector(y + at, four);
                } else {
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        if (e < left) y[at + e] = four.items[e];
                }
            }
        }
    }
};

}  // namespace evo
