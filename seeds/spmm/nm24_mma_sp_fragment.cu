/*---
about       = "2:4 SpMM on sparse tensor cores, pre-shuffled weights: 16-byte operand loads, streaming for small N"
format      = { name = "nm24", values = "fragment" }
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
require     = ["K % 64 == 0"]
constraints = [
    "BM % WM == 0 and BN % WN == 0 and BK % (64 * WK) == 0",
    "WM * WN <= 4096",
    "BK <= 256 * (BM // WM) * (BN // WN) * WK",
    "(BM // WM) * (BN // WN) * WK <= 16",
    "BM * BN <= 128 * 32 * (BM // WM) * (BN // WN)",
    "max(STAGES * (9 * BM * BK // 8 + 2 * BN * BK), 4 * (WK - 1) * BM * BN) <= 232448",
    "S_MT * S_BN <= 128",
    "S_DEPTH * S_MT * (1 - S_ASYNC) <= 8",
    "max(S_WARPS * S_DEPTH * (128 * S_BN + 1152 * S_MT * S_ASYNC), 64 * (S_WARPS - 1) * S_MT * S_BN) <= 232448",
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
bytes = "(N <= SMALL_N and S_SPLITK > 1) * S_SPLITK * round_up(M, 16 * S_MT) * round_up(N, S_BN) * 4"
init  = "poison"

[[workspace]]
name  = "arrived_small"
bytes = "(N <= SMALL_N and S_SPLITK > 1) * cdiv(M, 16 * S_MT) * cdiv(N, S_BN) * 4"
init  = "zero_once"

[[launch]]
kernel = "spmm"
when   = "N > SMALL_N"
grid   = ["cdiv(M, BM) * cdiv(N, BN) * SPLITK"]
block  = ["32 * (BM // WM) * (BN // WN) * WK"]
shared = "max(STAGES * (9 * BM * BK // 8 + 2 * BN * BK), 4 * (WK - 1) * BM * BN)"
args   = ["W.values", "W.meta", "X", "Y", "partial", "arrived", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "spmm_small"
when   = "N <= SMALL_N"
grid   = ["cdiv(M, 16 * S_MT) * cdiv(N, S_BN) * S_SPLITK"]
block  = ["32 * S_WARPS"]
shared = "max(S_WARPS * S_DEPTH * (128 * S_BN + 1152 * S_MT * S_ASYNC), 64 * (S_WARPS - 1) * S_MT * S_BN)"
args   = ["W.values", "W.meta", "X", "Y", "partial_small", "arrived_small", "M", "N", "K", "ldx", "ldy"]

[params]
SMALL_N  = { values = [0, 8, 16, 32, 64, 128],   default = 16 }  # up to this N the streaming shape (S_) serves
BM       = { values = [16, 32, 64, 128, 256],    default = 64 }
BN       = { values = [8, 16, 32, 64, 128, 256], default = 64 }
BK       = { values = [64, 128, 256, 512],       default = 64 }
WM       = { values = [16, 32, 64],              default = 32 }
WN       = { values = [8, 16, 32, 64, 128],      default = 32 }
WK       = { values = [1, 2, 4, 8],              default = 1 }  # warps that share a tile along K
STAGES   = { values = [2, 3, 4, 5, 6],           default = 2 }
SPLITK   = { values = [1, 2, 3, 4, 6, 8],        default = 1 }
GROUP    = { values = [1, 2, 4, 8, 16, 32],      default = 8 }  # row tiles walked before the next column tile
S_MT     = { values = [1, 2, 4],                 default = 1 }  # m16 tiles of a warp
S_BN     = { values = [8, 16, 32, 64],           default = 8 }
S_WARPS  = { values = [1, 2, 4, 8, 16],          default = 4 }  # each streams its own part of K
S_DEPTH  = { values = [1, 2, 3, 4, 6, 8],        default = 2 }  # k64 blocks in flight per warp
S_ASYNC  = { values = [0, 1],                    default = 0 }  # 1: W through shared memory, 0: into registers
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

// W tile of one stage in fragment order: [m16 tile][k64 block][k32 step][lane][8 values], then the metadata words.
template <class S>
struct WTile {
    static constexpr int BYTES = S::bm * S::bk * 9 / 8;

    static __device__ __forceinline__ void load(unsigned char* stage, const __half* values, const uint32_t* meta,
                                                int m0, int k0, int M, int K, int k_end) {
        // A row of m16 tiles has 64 16-byte chunks per k64 block: K in all.
        constexpr int CHUNKS = S::bk, ROWS = S::bm / 16;
        const uint4* source = reinterpret_cast<const uint4*>(values) + k0;
        const int last = evo::cdiv(M, 16) - 1;
#pragma unroll
        for (int i = 0; i < evo::cdiv(ROWS * CHUNKS, S::threads); ++i) {
            const int c = i * S::threads + threadIdx.x, chunk = c % CHUNKS;
            if (ROWS * CHUNKS % S::threads != 0 && c >= ROWS * CHUNKS) break;
            const int64_t mt = min(m0 / 16 + c / CHUNKS, last);
            evo::cp_async16_zfill(stage + c * 16, source + mt * K + chunk, k0 + chunk < k_end ? 16 : 0);
        }
        // Metadata past the end repeats the last block's: the values it would place are zero or never stored.
        constexpr int CHUNKS_E = S::bk / 8;  // 16-byte chunks of a row of m16 tiles: 8 a k64 block
        for (int c = threadIdx.x; c < S::bm / 16 * CHUNKS_E; c += S::threads) {
            const int64_t mt = min(m0 / 16 + c / CHUNKS_E, evo::cdiv(M, 16) - 1);
            const int chunk = min(k0 / 8 + c % CHUNKS_E, K / 8 - 1);
            evo::cp_async16(stage + S::bm * S::bk + c * 16, meta + mt * (K / 2) + chunk * 4);
        }
    }

    // A operand of rows row..row+15 for the k32 step `half` of block kb: one 16-byte read.
    static __device__ __forceinline__ void fragment(uint32_t (&a)[4], const unsigned char* stage, int row, int kb,
                                                    int half) {
        const uint4* chunks = reinterpret_cast<const uint4*>(stage);
        const uint4 v = chunks[((row / 16 * (S::bk / 64) + kb) * 2 + half) * 32 + threadIdx.x % 32];
        a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
    }

    // This lane's metadata word for rows row..row+15 and the 64 values of k of block kb.
    static __device__ __forceinline__ uint32_t metadata(const unsigned char* stage, int row, int kb) {
        const uint32_t* words = reinterpret_cast<const uint32_t*>(stage + S::bm * S::bk);
        return words[(row / 16 * (S::bk / 64) + kb) * 32 + threadIdx.x % 32];
    }
};

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

// One k32 step of a warp tile: HALF picks which 32 of the 64 values of k that a metadata word covers.
template <class S, int HALF>
__device__ __forceinline__ void multiply(float (&acc)[S::mt][S::nt][4], const uint32_t (&e)[S::mt],
                                         const unsigned char* stage, const __half* x_tile, int wm, int wn, int kb) {
    uint32_t a[S::mt][4];
#pragma unroll
    for (int mt = 0; mt < S::mt; ++mt) WTile<S>::fragment(a[mt], stage, wm + mt * 16, kb, HALF);
#pragma unroll
    for (int nt = 0; nt < S::nt; ++nt) {
        uint32_t b[4];
        XTile<S::bn, S::bk, S::threads>::fragment(b, x_tile, wn + nt * 8, kb * 64 + HALF * 32);
#pragma unroll
        for (int mt = 0; mt < S::mt; ++mt) evo::mma_sp_m16n8k32<HALF>(acc[mt][nt], a[mt], b, e[mt]);
    }
}

template <class S>
__device__ __forceinline__ void spmm_tile(const __half* values, const uint32_t* meta, const __half* x, __half* y,
                                          float* partial, uint32_t* arrived, int M, int N, int K, int64_t ldx,
                                          int64_t ldy) {
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

    const int blocks = K / 64, share = evo::cdiv(blocks, S::splits);
    const int k_begin = min(split * share, blocks) * 64, k_end = min(k_begin + share * 64, K);
    const int steps = evo::cdiv(k_end - k_begin, S::bk);

    const auto load = [&](int step) {
        unsigned char* stage = shared + step % S::stages * STAGE_BYTES;
        const int k0 = k_begin + step * S::bk;
        Weights::load(stage, values, meta, m0, k0, M, K, k_end);
        Activations::load(reinterpret_cast<__half*>(stage + Weights::BYTES), x, n0, k0, N, k_end, ldx);
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
        for (int block = 0; block < S::bk / 64 / S::wk; ++block) {
            const int kb = block * S::wk + part;
            uint32_t e[S::mt];
#pragma unroll
            for (int mt = 0; mt < S::mt; ++mt) e[mt] = Weights::metadata(stage, wm + mt * 16, kb);
            multiply<S, 0>(acc, e, stage, x_tile, wm, wn, kb);
            multiply<S, 1>(acc, e, stage, x_tile, wm, wn, kb);
        }
    }
    evo::cp_async_wait<0>();
    combine_warps<S>(acc, reinterpret_cast<float*>(shared), part, tile);
    const bool finished = combine_splits<S>(acc, partial, arrived, block_tile, split, part, tile);
    if (finished) store_tile(acc, y, m0 + wm, n0 + wn, M, N, ldy);
}

// Small-N shape: every warp streams its own k64 blocks of W straight from memory in fragment order, with a private
// ring of X tiles, so the main loop has no block barrier. S_ASYNC: W goes through shared memory too, not registers.
template <int Mt, int Nt, int Warps, int Depth, bool Async, int Splits>
struct Stream {
    static constexpr int mt = Mt, nt = Nt, wk = Warps, depth = Depth, splits = Splits, rows = 1, cols = 1;
    static constexpr bool async = Async;
    static constexpr int threads = 32 * wk;
    static constexpr int x_bytes = nt * 1024, w_bytes = async ? mt * 1152 : 0, slot_bytes = x_bytes + w_bytes;
};

// One lane's share of MT m16 tiles of a k64 block of W: both k32 steps' A operands and the metadata words.
template <int MT>
struct Block {
    uint4 a[MT][2];
    uint32_t e[MT];
};

template <class S>
__device__ __forceinline__ void fetch_weights(Block<S::mt>& block, unsigned char* slot, const __half* values,
                                              const uint32_t* meta, int tile, int kb, int M, int K) {
    const int lane = threadIdx.x % 32, last = evo::cdiv(M, 16) - 1;
#pragma unroll
    for (int mt = 0; mt < S::mt; ++mt) {
        const int64_t index = int64_t(min(tile + mt, last)) * (K / 64) + kb;
        const uint4* source = reinterpret_cast<const uint4*>(values) + index * 64 + lane;
        if constexpr (S::async) {
            evo::cp_async16(slot + (mt * 64 + lane) * 16, source);
            evo::cp_async16(slot + (mt * 64 + 32 + lane) * 16, source + 32);
            if (lane < 8) evo::cp_async16(slot + S::mt * 1024 + mt * 128 + lane * 16, meta + index * 32 + lane * 4);
        } else {
            block.a[mt][0] = __ldg(source);
            block.a[mt][1] = __ldg(source + 32);
            block.e[mt] = __ldg(meta + index * 32 + lane);
        }
    }
}

template <class S>
__device__ __forceinline__ void take_weights(Block<S::mt>& block, const unsigned char* slot) {
    const int lane = threadIdx.x % 32;
    if constexpr (S::async) {
#pragma unroll
        for (int mt = 0; mt < S::mt; ++mt) {
            block.a[mt][0] = reinterpret_cast<const uint4*>(slot)[mt * 64 + lane];
            block.a[mt][1] = reinterpret_cast<const uint4*>(slot)[mt * 64 + 32 + lane];
            block.e[mt] = reinterpret_cast<const uint32_t*>(slot + S::mt * 1024)[mt * 32 + lane];
        }
    }
}

template <int HALF, int MT, int NT>
__device__ __forceinline__ void multiply_block(float (&acc)[MT][NT][4], const Block<MT>& block, const __half* x_tile) {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
        uint32_t b[4];
        XTile<NT * 8, 64, 32>::fragment(b, x_tile, nt * 8, HALF * 32);
#pragma unroll
        for (int mt = 0; mt < MT; ++mt) {
            const uint4 v = block.a[mt][HALF];
            const uint32_t a[4] = {v.x, v.y, v.z, v.w};
            evo::mma_sp_m16n8k32<HALF>(acc[mt][nt], a, b, block.e[mt]);
        }
    }
}

template <class S>
__device__ __forceinline__ void spmm_stream(const __half* values, const uint32_t* meta, const __half* x, __half* y,
                                            float* partial, uint32_t* arrived, int M, int N, int K, int64_t ldx,
                                          int64_t ldy) {
    extern __shared__ __align__(16) unsigned char shared[];
    const int block_tile = blockIdx.x / S::splits, split = blockIdx.x % S::splits;
    int tile_m, tile_n;
    tile_of_block(block_tile, evo::cdiv(M, S::mt * 16), evo::cdiv(N, S::nt * 8), tile_m, tile_n);
    const int m0 = tile_m * S::mt * 16, n0 = tile_n * S::nt * 8, warp = threadIdx.x / 32;
    unsigned char* ring = shared + warp * S::depth * S::slot_bytes;

    const int share = evo::cdiv(K / 64, S::splits);
    const int first = min(split * share, K / 64) + warp, end = min(split * share + share, K / 64);

    Block<S::mt> blocks[S::depth];
    const auto fetch = [&](int kb, int d) {
        unsigned char* slot = ring + d * S::slot_bytes;
        if (kb < end) {
            fetch_weights<S>(blocks[d], slot + S::x_bytes, values, meta, m0 / 16, kb, M, K);
            XTile<S::nt * 8, 64, 32>::load(reinterpret_cast<__half*>(slot), x, n0, kb * 64, N, K, ldx);
        }
        evo::cp_async_commit();
    };
#pragma unroll
    for (int d = 0; d < S::depth; ++d) fetch(first + d * S::wk, d);

    float acc[S::mt][S::nt][4] = {};
    for (int kb = first; kb < end; kb += S::depth * S::wk) {
#pragma unroll
        for (int d = 0; d < S::depth; ++d) {
            if (kb + d * S::wk >= end) break;
            evo::cp_async_wait<S::depth - 1>();
            __syncwarp();
            const unsigned char* slot = ring + d * S::slot_bytes;
            take_weights<S>(blocks[d], slot + S::x_bytes);
            multiply_block<0>(acc, blocks[d], reinterpret_cast<const __half*>(slot));
            multiply_block<1>(acc, blocks[d], reinterpret_cast<const __half*>(slot));
            __syncwarp();
            fetch(kb + (d + S::depth) * S::wk, d);
        }
    }
    evo::cp_async_wait<0>();
    combine_warps<S>(acc, reinterpret_cast<float*>(shared), warp, 0);
    const bool finished = combine_splits<S>(acc, partial, arrived, block_tile, split, warp, 0);
    if (finished) store_tile(acc, y, m0, n0, M, N, ldy);
}

using Small = Stream<S_MT, S_BN / 8, S_WARPS, S_DEPTH, S_ASYNC != 0, S_SPLITK>;

extern "C" __global__ void __launch_bounds__(Large::threads)
spmm(const __half* values, const uint32_t* meta, const __half* x, __half* y, float* partial, uint32_t* arrived,
     int M, int N, int K, int64_t ldx, int64_t ldy) {
    spmm_tile<Large>(values, meta, x, y, partial, arrived, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(Small::threads)
spmm_small(const __half* values, const uint32_t* meta, const __half* x, __half* y, float* partial, uint32_t* arrived,
           int M, int N, int K, int64_t ldx, int64_t ldy) {
    spmm_stream<Small>(values, meta, x, y, partial, arrived, M, N, K, ldx, ldy);
}
