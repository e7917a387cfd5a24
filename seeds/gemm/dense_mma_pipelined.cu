/*---
about       = "Dense GEMM on tensor cores: cp.async pipeline, swizzled ldmatrix, mma m16n8k16, own tile for small N"
format      = "dense"
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
constraints = [
    "BM % WM == 0 and BN % WN == 0 and BK % (32 * WK) == 0",
    "WM * WN <= 4096",
    "BK <= 256 * (BM // WM) * (BN // WN) * WK",
    "(BM // WM) * (BN // WN) * WK <= 16",
    "BM * BN <= 128 * 32 * (BM // WM) * (BN // WN)",
    "max(STAGES * (2 * BM * BK + 2 * BN * BK), 4 * (WK - 1) * BM * BN) <= 232448",
    "S_BM % S_WM == 0 and S_BN % S_WN == 0 and S_BK % (32 * S_WK) == 0",
    "S_WM * S_WN <= 4096",
    "S_BK <= 256 * (S_BM // S_WM) * (S_BN // S_WN) * S_WK",
    "(S_BM // S_WM) * (S_BN // S_WN) * S_WK <= 16",
    "S_BM * S_BN <= 128 * 32 * (S_BM // S_WM) * (S_BN // S_WN)",
    "max(S_STAGES * (2 * S_BM * S_BK + 2 * S_BN * S_BK), 4 * (S_WK - 1) * S_BM * S_BN) <= 232448",
]

[[workspace]]
name  = "partial"  # fp32 contributions of the splits to a tile, as the warps hold them
bytes = "(N > SMALL_N and SPLITK > 1) * SPLITK * round_up(M, BM) * round_up(N, BN) * 4"
init  = "poison"

[[workspace]]
name  = "arrived"  # per tile: how many splits are done
bytes = "(N > SMALL_N and SPLITK > 1) * cdiv(M, BM) * cdiv(N, BN) * 4"
init  = "zero_once"

[[workspace]]
name  = "partial_small"
bytes = "(N <= SMALL_N and S_SPLITK > 1) * S_SPLITK * round_up(M, S_BM) * round_up(N, S_BN) * 4"
init  = "poison"

[[workspace]]
name  = "arrived_small"
bytes = "(N <= SMALL_N and S_SPLITK > 1) * cdiv(M, S_BM) * cdiv(N, S_BN) * 4"
init  = "zero_once"

[[launch]]
kernel = "gemm"
when   = "N > SMALL_N and K % 8 == 0"
grid   = ["cdiv(M, BM) * cdiv(N, BN) * SPLITK"]
block  = ["32 * (BM // WM) * (BN // WN) * WK"]
shared = "max(STAGES * (2 * BM * BK + 2 * BN * BK), 4 * (WK - 1) * BM * BN)"
args   = ["W.values", "X", "Y", "partial", "arrived", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "gemm_small"
when   = "N <= SMALL_N and K % 8 == 0"
grid   = ["cdiv(M, S_BM) * cdiv(N, S_BN) * S_SPLITK"]
block  = ["32 * (S_BM // S_WM) * (S_BN // S_WN) * S_WK"]
shared = "max(S_STAGES * (2 * S_BM * S_BK + 2 * S_BN * S_BK), 4 * (S_WK - 1) * S_BM * S_BN)"
args   = ["W.values", "X", "Y", "partial_small", "arrived_small", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "gemm_unaligned"
when   = "K % 8 != 0"
grid   = ["cdiv(M, 64) * cdiv(N, 64)"]
block  = ["128"]
shared = "32768"
args   = ["W.values", "X", "Y", "partial", "arrived", "M", "N", "K", "ldx", "ldy"]

[params]
SMALL_N  = { values = [0, 8, 16, 32, 64, 128],   default = 32 }  # up to this N the second tile shape (S_) serves
BM       = { values = [16, 32, 64, 128, 256],    default = 128 }
BN       = { values = [8, 16, 32, 64, 128, 256], default = 64 }
BK       = { values = [64, 128, 256],            default = 64 }
WM       = { values = [16, 32, 64],              default = 32 }
WN       = { values = [8, 16, 32, 64, 128],      default = 32 }
WK       = { values = [1, 2, 4, 8],              default = 1 }  # warps that share a tile along K
STAGES   = { values = [2, 3, 4, 5, 6],           default = 4 }
SPLITK   = { values = [1, 2, 3, 4, 6, 8],        default = 1 }
GROUP    = { values = [1, 2, 4, 8, 16, 32],      default = 8 }  # row tiles walked before the next column tile
S_BM     = { values = [16, 32, 64, 128],         default = 32 }
S_BN     = { values = [8, 16, 32, 64],           default = 16 }
S_BK     = { values = [64, 128, 256, 512],       default = 256 }
S_WM     = { values = [16, 32, 64],              default = 16 }
S_WN     = { values = [8, 16, 32, 64],           default = 16 }
S_WK     = { values = [1, 2, 4, 8],              default = 8 }
S_STAGES = { values = [2, 3, 4, 5, 6, 8],        default = 4 }
S_SPLITK = { values = [1, 2, 3, 4, 6, 8],        default = 1 }
---*/
#include "evo.cuh"

template <int Bm, int Bn, int Bk, int Wm, int Wn, int Wk, int Stages, int Splits>
struct Shape {
    static constexpr int bm = Bm, bn = Bn, bk = Bk;            // the block's tile and its step along K
    static constexpr int wm = Wm, wn = Wn, wk = Wk;            // a warp's tile; wk warps share one, each a part of k
    static constexpr int stages = Stages, splits = Splits;
    static constexpr int mt = wm / 16, nt = wn / 8;            // tensor-core tiles of one warp
    static constexpr int rows = bm / wm, cols = bn / wn;       // warps down and across the block's tile
    static constexpr int threads = 32 * rows * cols * wk;
};
using Large = Shape<BM, BN, BK, WM, WN, WK, STAGES, SPLITK>;
using Small = Shape<S_BM, S_BN, S_BK, S_WM, S_WN, S_WK, S_STAGES, S_SPLITK>;
using Unaligned = Shape<64, 64, 64, 32, 32, 1, 2, 1>;

// region: x_tile(ROWS, COLS, THREADS: offset, load, fragment)
// X tile in shared memory, ROWS columns of X by COLS values of k, 16-byte chunks XOR-swizzled against bank conflicts.
template <int ROWS, int COLS, int THREADS>
struct XTile {
    // Where chunk `chunk` (eight values of k) of a row lies, in elements.
    static __device__ __forceinline__ int offset(int row, int chunk) { return row * COLS + ((chunk ^ (row & 7)) << 3); }

    // Starts the copy of X[n0.., k0..]; what lies past N or k_end becomes zero.
    static __device__ __forceinline__ void load(__half* tile, const __half* x, int n0, int k0, int N, int k_end,
                                                int64_t ldx) {
        constexpr int CHUNKS = COLS / 8, STEP = THREADS / CHUNKS;  // a thread keeps its chunk and goes STEP rows down
        static_assert(THREADS % CHUNKS == 0, "a row of the tile must not have more chunks than there are threads");
        const int chunk = threadIdx.x % CHUNKS, first = threadIdx.x % THREADS / CHUNKS;
        const __half* source = x + k0 + chunk * 8;
        const int bytes = k0 + chunk * 8 < k_end ? 16 : 0;
#pragma unroll
        for (int i = 0; i < evo::cdiv(ROWS, STEP); ++i) {
            const int row = first + i * STEP;
            if (ROWS % STEP != 0 && row >= ROWS) break;
            const int64_t n = min(n0 + row, N - 1);
            evo::cp_async16_zfill(tile + offset(row, chunk), source + n * ldx, n0 + row < N ? bytes : 0);
        }
    }

    // B operand of eight columns of X (row..row+7) and 32 values of k: register i holds k + 8 * i + 2 * (lane % 4)
    // and the next.
    static __device__ __forceinline__ void fragment(uint32_t (&b)[4], const __half* tile, int row, int k) {
        const int lane = threadIdx.x % 32;
        evo::ldmatrix_x4(b, tile + offset(row + lane % 8, k / 8 + lane / 8));
    }
};
// endregion

// W tile of one stage: BM rows of BK values, chunks XOR-swizzled.
template <class S>
struct WTile {
    static constexpr int BYTES = S::bm * S::bk * 2;
    static constexpr int CHUNKS = S::bk / 8;

    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * S::bk + ((chunk ^ (row & 7)) << 3);
    }

    static __device__ __forceinline__ void load(unsigned char* stage, const __half* values, int m0, int k0, int M,
                                                int K, int k_end) {
        __half* tile = reinterpret_cast<__half*>(stage);
        constexpr int STEP = S::threads / CHUNKS;  // a thread keeps its chunk and goes STEP rows down
        const int chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS, k = k0 + chunk * 8;
        const __half* source = values + k;
        const int bytes = k < k_end ? 16 : 0;
#pragma unroll
        for (int i = 0; i < evo::cdiv(S::bm, STEP); ++i) {
            const int row = first + i * STEP;
            if (S::bm % STEP != 0 && row >= S::bm) break;
            evo::cp_async16_zfill(tile + offset(row, chunk), source + int64_t(min(m0 + row, M - 1)) * K, bytes);
        }
    }

    // A operand of rows row..row+15 and values k..k+15 of the tile.
    static __device__ __forceinline__ void fragment(uint32_t (&a)[4], const unsigned char* stage, int row, int k) {
        const int lane = threadIdx.x % 32;
        evo::ldmatrix_x4(a, reinterpret_cast<const __half*>(stage) + offset(row + lane % 16, k / 8 + lane / 16));
    }
};

// Fills a swizzled tile element by element: rows whose length is no multiple of eight are not 16-byte aligned.
template <class Tile, int ROWS, int COLS, int THREADS>
__device__ __forceinline__ void load_unaligned(__half* tile, const __half* source, int row0, int k0, int rows,
                                               int k_end, int64_t ld) {
    for (int c = threadIdx.x; c < ROWS * COLS; c += THREADS) {
        const int row = c / COLS, k = c % COLS;
        const bool inside = row0 + row < rows && k0 + k < k_end;
        tile[Tile::offset(row, k / 8) + k % 8] = inside ? source[(row0 + row) * ld + k0 + k] : __half(0.0f);
    }
}

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

// region: epilogue(acc, y, m0, n0, M, N, ldy)
// Rounds a warp's accumulators to fp16, transposes each 8x8 block in registers and stores two rows at once.
template <int MT, int NT>
__device__ __forceinline__ void store_tile(const float (&acc)[MT][NT][4], __half* y, int m0, int n0, int M, int N,
                                           int64_t ldy) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int mt = 0; mt < MT; ++mt)
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const __half2 row = __floats2half2_rn(acc[mt][nt][half * 2], acc[mt][nt][half * 2 + 1]);
                const uint32_t column = evo::movmatrix_trans(reinterpret_cast<const uint32_t&>(row));
                const int m = m0 + mt * 16 + half * 8 + lane % 4 * 2, n = n0 + nt * 8 + lane / 4;
                const __half2 pair = reinterpret_cast<const __half2&>(column);
                if (n < N && m + 1 < M && ldy % 2 == 0) {
                    *reinterpret_cast<__half2*>(y + n * ldy + m) = pair;
                } else if (n < N) {
                    if (m < M) y[n * ldy + m] = __low2half(pair);
                    if (m + 1 < M) y[n * ldy + m + 1] = __high2half(pair);
                }
            }
}
// endregion

// Adds up the accumulators of the WK warps that share a warp tile; afterwards those with part 0 hold the sum.
template <class S>
__device__ __forceinline__ void combine_warps(float (&acc)[S::mt][S::nt][4], float* buffer, int part, int tile) {
    if constexpr (S::wk > 1) {
        const int lane = threadIdx.x % 32;
        __syncthreads();
        float* mine = buffer + ((part - 1) * S::rows * S::cols + tile) * (S::mt * S::nt * 128) + lane;
        if (part > 0) {
#pragma unroll
            for (int i = 0; i < S::mt * S::nt * 4; ++i) mine[i * 32] = acc[i / 4 / S::nt][i / 4 % S::nt][i % 4];
        }
        __syncthreads();
        if (part == 0) {
            for (int p = 0; p < S::wk - 1; ++p) {
                const float* other = buffer + (p * S::rows * S::cols + tile) * (S::mt * S::nt * 128) + lane;
#pragma unroll
                for (int i = 0; i < S::mt * S::nt * 4; ++i)
                    acc[i / 4 / S::nt][i / 4 % S::nt][i % 4] += other[i * 32];
            }
        }
    }
}

// Split-K in one launch: every block leaves its fp32 contribution in memory, and the last one of a tile to arrive adds
// them up, in the order of the splits whoever is last. True for the warps that then hold the finished sum.
template <class S>
__device__ __forceinline__ bool combine_splits(float (&acc)[S::mt][S::nt][4], float* partial, uint32_t* arrived,
                                               int block_tile, int split, int part, int tile) {
    if constexpr (S::splits > 1) {
        extern __shared__ __align__(16) unsigned char shared[];
        constexpr int COUNT = S::mt * S::nt, STRIDE = S::rows * S::cols * COUNT * 32;  // float4s of a lane, of a block
        float4* slot = reinterpret_cast<float4*>(partial) + int64_t(block_tile) * S::splits * STRIDE;
        slot += tile * COUNT * 32 + threadIdx.x % 32;
        if (part == 0) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                const float* v = acc[i / S::nt][i % S::nt];
                slot[split * STRIDE + i * 32] = make_float4(v[0], v[1], v[2], v[3]);
            }
        }
        __threadfence();
        __syncthreads();
        int* last = reinterpret_cast<int*>(shared);
        if (threadIdx.x == 0) {
            *last = atomicAdd(arrived + block_tile, 1u) == S::splits - 1;
            if (*last) arrived[block_tile] = 0;  // as it was found, for the next launch
        }
        __syncthreads();
        if (!*last || part > 0) return false;
        __threadfence();
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            float(&v)[4] = acc[i / S::nt][i % S::nt];
            const float4 own = make_float4(v[0], v[1], v[2], v[3]);
            v[0] = v[1] = v[2] = v[3] = 0.0f;
#pragma unroll
            for (int s = 0; s < S::splits; ++s) {
                const float4 other = s == split ? own : __ldcg(slot + s * STRIDE + i * 32);
                v[0] += other.x, v[1] += other.y, v[2] += other.z, v[3] += other.w;
            }
        }
    }
    return part == 0;
}

// One k32 step of a warp tile: two m16n8k16 products for every tile.
template <class S>
__device__ __forceinline__ void multiply(float (&acc)[S::mt][S::nt][4], const unsigned char* stage,
                                         const __half* x_tile, int wm, int wn, int k) {
    uint32_t a[2][S::mt][4];
#pragma unroll
    for (int mt = 0; mt < S::mt; ++mt) {
        WTile<S>::fragment(a[0][mt], stage, wm + mt * 16, k);
        WTile<S>::fragment(a[1][mt], stage, wm + mt * 16, k + 16);
    }
#pragma unroll
    for (int nt = 0; nt < S::nt; ++nt) {
        uint32_t b[4];
        XTile<S::bn, S::bk, S::threads>::fragment(b, x_tile, wn + nt * 8, k);
#pragma unroll
        for (int mt = 0; mt < S::mt; ++mt) {
            evo::mma_m16n8k16(acc[mt][nt], a[0][mt], b[0], b[1]);
            evo::mma_m16n8k16(acc[mt][nt], a[1][mt], b[2], b[3]);
        }
    }
}

template <class S, bool ALIGNED>
__device__ __forceinline__ void gemm_tile(const __half* values, const __half* x, __half* y, float* partial,
                                          uint32_t* arrived, int M, int N, int K, int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(16) unsigned char shared[];
    using Weights = WTile<S>;
    using Activations = XTile<S::bn, S::bk, S::threads>;
    constexpr int STAGE_BYTES = Weights::BYTES + S::bn * S::bk * 2;

    const int block_tile = blockIdx.x / S::splits, split = blockIdx.x % S::splits;
    int tile_m, tile_n;
    tile_of_block(block_tile, evo::cdiv(M, S::bm), evo::cdiv(N, S::bn), tile_m, tile_n);
    const int m0 = tile_m * S::bm, n0 = tile_n * S::bn;
    const int tile = threadIdx.x / 32 % (S::rows * S::cols), part = threadIdx.x / 32 / (S::rows * S::cols);
    const int wm = tile % S::rows * S::wm, wn = tile / S::rows * S::wn;

    const int blocks = evo::cdiv(K, 64), share = evo::cdiv(blocks, S::splits);
    const int k_begin = min(split * share, blocks) * 64, k_end = min(k_begin + share * 64, K);
    const int steps = evo::cdiv(k_end - k_begin, S::bk);

    const auto load = [&](int step) {
        unsigned char* stage = shared + step % S::stages * STAGE_BYTES;
        const int k0 = k_begin + step * S::bk;
        __half* w_tile = reinterpret_cast<__half*>(stage);
        __half* x_tile = reinterpret_cast<__half*>(stage + Weights::BYTES);
        if constexpr (ALIGNED) {
            Weights::load(stage, values, m0, k0, M, K, k_end);
            Activations::load(x_tile, x, n0, k0, N, k_end, ldx);
        } else {
            load_unaligned<Weights, S::bm, S::bk, S::threads>(w_tile, values, m0, k0, M, k_end, K);
            load_unaligned<Activations, S::bn, S::bk, S::threads>(x_tile, x, n0, k0, N, k_end, ldx);
        }
    };
    for (int step = 0; step < S::stages - 1; ++step) {
        if (step < steps) load(step);
        evo::cp_async_commit();
    }
    float acc[S::mt][S::nt][4] = {};
    for (int step = 0; step < steps; ++step) {
        evo::cp_async_wait<S::stages - 2>();
        __syncthreads();
        if (step + S::stages - 1 < steps) load(step + S::stages - 1);
        evo::cp_async_commit();
        const unsigned char* stage = shared + step % S::stages * STAGE_BYTES;
        const __half* x_tile = reinterpret_cast<const __half*>(stage + Weights::BYTES);
#pragma unroll
        for (int step32 = 0; step32 < S::bk / 32 / S::wk; ++step32)
            multiply<S>(acc, stage, x_tile, wm, wn, (step32 * S::wk + part) * 32);
    }
    evo::cp_async_wait<0>();
    combine_warps<S>(acc, reinterpret_cast<float*>(shared), part, tile);
    const bool finished = combine_splits<S>(acc, partial, arrived, block_tile, split, part, tile);
    if (finished) store_tile(acc, y, m0 + wm, n0 + wn, M, N, ldy);
}

extern "C" __global__ void __launch_bounds__(Large::threads)
gemm(const __half* values, const __half* x, __half* y, float* partial, uint32_t* arrived, int M, int N, int K,
     int64_t ldx, int64_t ldy) {
    gemm_tile<Large, true>(values, x, y, partial, arrived, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(Small::threads)
gemm_small(const __half* values, const __half* x, __half* y, float* partial, uint32_t* arrived, int M, int N, int K,
           int64_t ldx, int64_t ldy) {
    gemm_tile<Small, true>(values, x, y, partial, arrived, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(Unaligned::threads)
gemm_unaligned(const __half* values, const __half* x, __half* y, float* partial, uint32_t* arrived, int M, int N, int K,
               int64_t ldx, int64_t ldy) {
    gemm_tile<Unaligned, false>(values, x, y, partial, arrived, M, N, K, ldx, ldy);
}
