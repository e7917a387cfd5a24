/*---
about       = "Fused dense GEMM on fp32 FMA for any type and layout: tiles in shared memory, TM x TN sums per thread"
format      = "dense"
constraints = [
    "BM % (4 * TM) == 0 and BN % (4 * TN) == 0",
    "(BM // TM) * (BN // TN) % 32 == 0 and (BM // TM) * (BN // TN) <= 1024",
    "8 * BK * (BM + BN + 8) <= 98304",
]

[[launch]]
kernel = "gemm"
grid   = ["cdiv(M, BM) * cdiv(N, BN)"]
block  = ["(BM // TM) * (BN // TN)"]
shared = "8 * BK * (BM + BN + 8)"
args   = ["W.values", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
BM    = { values = [16, 32, 64, 128], default = 64 }
BN    = { values = [16, 32, 64, 128], default = 64 }
BK    = { values = [8, 16, 32],       default = 16 }
TM    = { values = [4, 8],            default = 4 }  # a thread's rows, in groups of four neighbours
TN    = { values = [4, 8],            default = 4 }
GROUP = { values = [1, 4, 8, 16],     default = 8 }  # row tiles walked before the next column tile
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int THREADS = BM / TM * (BN / TN);
constexpr int VECTOR = 16 / sizeof(in_t);  // elements of one 16-byte load

// A tile of OUTER x BK in shared memory as float[BK][OUTER + 4], and its copy on the way there in registers, so that
// the loads of the next tile run while this one is multiplied. K_FAST: k is the contiguous dimension of the source.
template <int OUTER, bool K_FAST>
struct Tile {
    static constexpr int STRIDE = OUTER + 4;
    static constexpr int FAST = K_FAST ? BK : OUTER, SLOW = K_FAST ? OUTER : BK;
    static constexpr int WIDTH = FAST < VECTOR ? FAST : VECTOR;
    static constexpr int ITEMS = FAST / WIDTH * SLOW, COUNT = (ITEMS + THREADS - 1) / THREADS;
    evo::Vector<in_t, WIDTH> held[COUNT];

    // Fetches source[outer0.., k0..]; what lies outside becomes zero.
    __device__ __forceinline__ void fetch(const in_t* source, int outer0, int k0, int outer_end, int k_end,
                                          int64_t ld) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int item = threadIdx.x + i * THREADS;
            const int fast = item % (FAST / WIDTH) * WIDTH + (K_FAST ? k0 : outer0);
            const int slow = item / (FAST / WIDTH) + (K_FAST ? outer0 : k0);
            const int fast_end = K_FAST ? k_end : outer_end, slow_end = K_FAST ? outer_end : k_end;
            const bool inside = slow < slow_end && (ITEMS % THREADS == 0 || item < ITEMS);
            const in_t* from = source + int64_t(slow) * ld + fast;
            if (inside && fast + WIDTH <= fast_end && ld % WIDTH == 0) {
                held[i] = evo::load_readonly<WIDTH>(from);
            } else {
#pragma unroll
                for (int j = 0; j < WIDTH; ++j)
                    held[i].items[j] = inside && fast + j < fast_end ? from[j] : evo::from_float<in_t>(0.0f);
            }
        }
    }

    // Puts what was fetched into `tile`, transposed where k is contiguous.
    __device__ __forceinline__ void put(float* tile) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int item = threadIdx.x + i * THREADS;
            if (ITEMS % THREADS != 0 && item >= ITEMS) break;
            const int fast = item % (FAST / WIDTH) * WIDTH, slow = item / (FAST / WIDTH);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j) {
                const int k = K_FAST ? fast + j : slow, outer = K_FAST ? slow : fast + j;
                tile[k * STRIDE + outer] = evo::to_float(held[i].items[j]);
            }
        }
    }
};
using WTile = Tile<BM, true>;
using XTile = Tile<BN, !evo::X_ROW>;

// region: tile_order(block, tiles_m, tiles_n: tile_m, tile_n)
// Blocks walk down GROUP row tiles before they move to the next column tile: both operands stay in L2.
__device__ __forceinline__ void tile_of_block(int block, int tiles_m, int tiles_n, int& tile_m, int& tile_n) {
    const int group = block / (GROUP * tiles_n) * GROUP;
    const int rows = min(tiles_m - group, GROUP);
    const int inside = block % (GROUP * tiles_n);
    tile_m = group + inside % rows;
    tile_n = inside / rows;
}
// endregion

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const in_t* values, const in_t* x, out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N,
     int K, int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(16) float shared[];  // two stages of a W tile and an X tile
    constexpr int STAGE = BK * (WTile::STRIDE + XTile::STRIDE);

    int tile_m, tile_n;
    tile_of_block(blockIdx.x, evo::cdiv(M, BM), evo::cdiv(N, BN), tile_m, tile_n);
    const int m0 = tile_m * BM, n0 = tile_n * BN;
    // A thread's rows are groups of four neighbours, BM * 4 / TM apart; so are its columns.
    const int row = threadIdx.x % (BM / TM) * 4, column = threadIdx.x / (BM / TM) * 4;

    WTile w_tile;
    XTile x_tile;
    w_tile.fetch(values, m0, 0, M, K, K);
    x_tile.fetch(x, n0, 0, N, K, ldx);
    w_tile.put(shared);
    x_tile.put(shared + BK * WTile::STRIDE);
    __syncthreads();

    float acc[TM][TN] = {};
    const int steps = evo::cdiv(K, BK);
    for (int step = 0; step < steps; ++step) {
        const float* w_now = shared + step % 2 * STAGE;
        const float* x_now = w_now + BK * WTile::STRIDE;
        if (step + 1 < steps) {
            w_tile.fetch(values, m0, (step + 1) * BK, M, K, K);
            x_tile.fetch(x, n0, (step + 1) * BK, N, K, ldx);
        }
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float w[TM], v[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                *reinterpret_cast<float4*>(w + i) =
                    *reinterpret_cast<const float4*>(w_now + k * WTile::STRIDE + row + i * (BM / TM));
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                *reinterpret_cast<float4*>(v + j) =
                    *reinterpret_cast<const float4*>(x_now + k * XTile::STRIDE + column + j * (BN / TN));
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(w[i], v[j], acc[i][j]);
        }
        if (step + 1 < steps) {
            float* next = shared + (step + 1) % 2 * STAGE;
            w_tile.put(next);
            x_tile.put(next + BK * WTile::STRIDE);
        }
        __syncthreads();
    }

    const evo::Epilogue epilogue{bias, residual, scale};
    // Four neighbours along the contiguous dimension of Y go in one store.
    constexpr int OUTER = evo::Y_ROW ? TM : TN, INNER = evo::Y_ROW ? TN : TM;
#pragma unroll
    for (int o = 0; o < OUTER; ++o)
#pragma unroll
        for (int i = 0; i < INNER; i += 4) {
            evo::Vector<out_t, 4> four;
            const int mi = evo::Y_ROW ? o : i, ni = evo::Y_ROW ? i : o;
            const int m = m0 + row + mi / 4 * 4 * (BM / TM) + mi % 4, n = n0 + column + ni / 4 * 4 * (BN / TN) + ni % 4;
            const int left = evo::Y_ROW ? (m < M ? N - n : 0) : (n < N ? M - m : 0);
            const int64_t at = evo::y_index(m, n, ldy);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float sum = evo::Y_ROW ? acc[o][i + e] : acc[i + e][o];
                four.items[e] = e < left ? epilogue(sum, evo::Y_ROW ? m : m + e, at + e) : evo::from_float<out_t>(0.0f);
            }
            if (left >= 4 && ldy % 4 == 0) {
                evo::store_vector(y + at, four);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (e < left) y[at + e] = four.items[e];
            }
        }
}
