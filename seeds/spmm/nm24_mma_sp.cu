/*---
about       = "2:4 SpMM on sparse tensor cores: row-order values through cp.async and ldmatrix, mma.sp m16n8k32"
format      = { name = "nm24", values = "row" }
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
    "S_BM % S_WM == 0 and S_BN % S_WN == 0 and S_BK % (64 * S_WK) == 0",
    "S_WM * S_WN <= 4096",
    "S_BK <= 256 * (S_BM // S_WM) * (S_BN // S_WN) * S_WK",
    "(S_BM // S_WM) * (S_BN // S_WN) * S_WK <= 16",
    "S_BM * S_BN <= 128 * 32 * (S_BM // S_WM) * (S_BN // S_WN)",
    "max(S_STAGES * (9 * S_BM * S_BK // 8 + 2 * S_BN * S_BK), 4 * (S_WK - 1) * S_BM * S_BN) <= 232448",
]

[[workspace]]
name  = "partial"                # fp32 contributions of the splits, [split][n][m]
bytes = "16 + 4 * M * N * max((SPLITK > 1) * SPLITK, (S_SPLITK > 1) * S_SPLITK)"
init  = "poison"

[[launch]]
kernel = "spmm"
when   = "N > SMALL_N"
grid   = ["cdiv(M, BM) * cdiv(N, BN)", "SPLITK"]
block  = ["32 * (BM // WM) * (BN // WN) * WK"]
shared = "max(STAGES * (9 * BM * BK // 8 + 2 * BN * BK), 4 * (WK - 1) * BM * BN)"
args   = ["W.values", "W.meta", "X", "Y", "partial", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "reduce"
when   = "N > SMALL_N and SPLITK > 1"
grid   = ["max(1, min(cdiv(M * N, 1024), 8 * SMS))"]
block  = ["256"]
shared = "0"
args   = ["partial", "Y", "M", "N", "ldy"]

[[launch]]
kernel = "spmm_small"
when   = "N <= SMALL_N"
grid   = ["cdiv(M, S_BM) * cdiv(N, S_BN)", "S_SPLITK"]
block  = ["32 * (S_BM // S_WM) * (S_BN // S_WN) * S_WK"]
shared = "max(S_STAGES * (9 * S_BM * S_BK // 8 + 2 * S_BN * S_BK), 4 * (S_WK - 1) * S_BM * S_BN)"
args   = ["W.values", "W.meta", "X", "Y", "partial", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "reduce_small"
when   = "N <= SMALL_N and S_SPLITK > 1"
grid   = ["max(1, min(cdiv(M * N, 1024), 8 * SMS))"]
block  = ["256"]
shared = "0"
args   = ["partial", "Y", "M", "N", "ldy"]

[params]
SMALL_N  = { values = [0, 8, 16, 32, 64, 128],   default = 32 }  # up to this N the second tile shape (S_) serves
BM       = { values = [16, 32, 64, 128, 256],    default = 64 }
BN       = { values = [8, 16, 32, 64, 128, 256], default = 64 }
BK       = { values = [64, 128, 256, 512],       default = 64 }
WM       = { values = [16, 32, 64],              default = 32 }
WN       = { values = [8, 16, 32, 64, 128],      default = 32 }
WK       = { values = [1, 2, 4, 8],              default = 1 }  # warps that share a tile along K
STAGES   = { values = [2, 3, 4, 5, 6],           default = 2 }
SPLITK   = { values = [1, 2, 3, 4, 6, 8],        default = 1 }
S_BM     = { values = [16, 32, 64, 128],         default = 64 }
S_BN     = { values = [8, 16, 32, 64],           default = 32 }
S_BK     = { values = [64, 128, 256, 512],       default = 64 }
S_WM     = { values = [16, 32, 64],              default = 16 }
S_WN     = { values = [8, 16, 32, 64],           default = 16 }
S_WK     = { values = [1, 2, 4, 8],              default = 1 }
S_STAGES = { values = [2, 3, 4, 5, 6, 8],        default = 2 }
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

// W tile of one stage: BM rows of BK / 2 stored values, chunks XOR-swizzled, then the metadata words.
template <class S>
struct WTile {
    static constexpr int BYTES = S::bm * S::bk * 9 / 8;
    static constexpr int CHUNKS = S::bk / 16;

    static __device__ __forceinline__ int offset(int row, int chunk) {
        const int flip = CHUNKS >= 8 ? row & 7 : row / 2 & 3;
        return row * (S::bk / 2) + ((chunk ^ flip) << 3);
    }

    static __device__ __forceinline__ void load(unsigned char* stage, const __half* values, const uint32_t* meta,
                                                int m0, int k0, int M, int K, int k_end) {
        __half* tile = reinterpret_cast<__half*>(stage);
        const int last = evo::cdiv(M, 16) * 16 - 1;
        constexpr int STEP = S::threads / CHUNKS;  // a thread keeps its chunk and goes STEP rows down
        const int chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS, k = k0 + chunk * 16;
        const __half* source = values + k / 2;
        const int bytes = k < k_end ? 16 : 0;
#pragma unroll
        for (int i = 0; i < evo::cdiv(S::bm, STEP); ++i) {
            const int row = first + i * STEP;
            if (S::bm % STEP != 0 && row >= S::bm) break;
            evo::cp_async16_zfill(tile + offset(row, chunk), source + int64_t(min(m0 + row, last)) * (K / 2), bytes);
        }
        // Metadata past the end repeats the last block's: the values it would place are zero or never stored.
        constexpr int CHUNKS_E = S::bk / 8;  // 16-byte chunks of a row of m16 tiles: 8 a k64 block
        for (int c = threadIdx.x; c < S::bm / 16 * CHUNKS_E; c += S::threads) {
            const int64_t mt = min(m0 / 16 + c / CHUNKS_E, evo::cdiv(M, 16) - 1);
            const int chunk = min(k0 / 8 + c % CHUNKS_E, K / 8 - 1);
            evo::cp_async16(stage + S::bm * S::bk + c * 16, meta + mt * (K / 2) + chunk * 4);
        }
    }

    // A operand of rows row..row+15: 16 stored values a row, those of the k32 step `half` of block kb.
    static __device__ __forceinline__ void fragment(uint32_t (&a)[4], const unsigned char* stage, int row, int kb,
                                                    int half) {
        const int lane = threadIdx.x % 32;
        const __half* tile = reinterpret_cast<const __half*>(stage);
        evo::ldmatrix_x4(a, tile + offset(row + lane % 16, kb * 4 + half * 2 + lane / 16));
    }

    // This lane's metadata word for rows row..row+15 and the 64 values of k of block kb.
    static __device__ __forceinline__ uint32_t metadata(const unsigned char* stage, int row, int kb) {
        const uint32_t* words = reinterpret_cast<const uint32_t*>(stage + S::bm * S::bk);
        return words[(row / 16 * (S::bk / 64) + kb) * 32 + threadIdx.x % 32];
    }
};

// region: tile_order(block, tiles_m, tiles_n: tile_m, tile_n)
// Neighbouring blocks take neighbouring rows of W, so they share the X tile.
__device__ __forceinline__ void tile_of_block(int block, int tiles_m, int tiles_n, int& tile_m, int& tile_n) {
    tile_m = block % tiles_m;
    tile_n = block / tiles_m;
}
// endregion

// region: epilogue(acc, y, m0, n0, M, N, ldy)
// Rounds a warp's accumulators to fp16 and stores them one by one.
template <int MT, int NT>
__device__ __forceinline__ void store_tile(const float (&acc)[MT][NT][4], __half* y, int m0, int n0, int M, int N,
                                           int64_t ldy) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int mt = 0; mt < MT; ++mt)
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int m = m0 + mt * 16 + lane / 4 + i / 2 * 8, n = n0 + nt * 8 + lane % 4 * 2 + i % 2;
                if (m < M && n < N) y[n * ldy + m] = __float2half_rn(acc[mt][nt][i]);
            }
}
// endregion

// region: reduce(partial, y, M, N, ldy, splits)
// Sums the split-K partial results in a fixed order, four neighbouring rows of an output column per thread and step.
__device__ __forceinline__ void reduce_partials(const float* partial, __half* y, int M, int N, int64_t ldy,
                                                int splits) {
    const int64_t total = int64_t(M) * N;
    const int quads = evo::cdiv(M, 4);
    const bool whole = M % 4 == 0 && ldy % 4 == 0;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < int64_t(quads) * N;
         i += int64_t(gridDim.x) * blockDim.x) {
        const int n = int(i / quads), m = int(i % quads) * 4;
        const float* column = partial + int64_t(n) * M + m;
        if (whole) {
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
            for (int s = 0; s < splits; ++s) {
                const float4 part = *reinterpret_cast<const float4*>(column + s * total);
                sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
            }
            const __half2 low = __floats2half2_rn(sum.x, sum.y), high = __floats2half2_rn(sum.z, sum.w);
            *reinterpret_cast<uint2*>(y + n * ldy + m) =
                make_uint2(reinterpret_cast<const uint32_t&>(low), reinterpret_cast<const uint32_t&>(high));
            continue;
        }
        for (int j = 0; j < min(4, M - m); ++j) {
            float sum = 0.0f;
            for (int s = 0; s < splits; ++s) sum += column[s * total + j];
            y[n * ldy + m + j] = __float2half_rn(sum);
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

// Stores a warp's unrounded accumulators as one split's contribution, laid out [split][n][m].
template <int MT, int NT>
__device__ __forceinline__ void store_partial(const float (&acc)[MT][NT][4], float* partial, int m0, int n0, int M,
                                              int N) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int mt = 0; mt < MT; ++mt)
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int m = m0 + mt * 16 + lane / 4 + i / 2 * 8, n = n0 + nt * 8 + lane % 4 * 2 + i % 2;
                if (m < M && n < N) partial[int64_t(n) * M + m] = acc[mt][nt][i];
            }
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
                                          float* partial, int M, int N, int K, int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(16) unsigned char shared[];
    using Weights = WTile<S>;
    using Activations = XTile<S::bn, S::bk, S::threads>;
    constexpr int STAGE_BYTES = Weights::BYTES + S::bn * S::bk * 2;

    int tile_m, tile_n;
    tile_of_block(blockIdx.x, evo::cdiv(M, S::bm), evo::cdiv(N, S::bn), tile_m, tile_n);
    const int m0 = tile_m * S::bm, n0 = tile_n * S::bn;
    const int tile = threadIdx.x / 32 % (S::rows * S::cols), part = threadIdx.x / 32 / (S::rows * S::cols);
    const int wm = tile % S::rows * S::wm, wn = tile / S::rows * S::wn;

    const int blocks = K / 64, share = evo::cdiv(blocks, S::splits);
    const int k_begin = min(int(blockIdx.y) * share, blocks) * 64, k_end = min(k_begin + share * 64, K);
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
    if (part > 0) return;
    if constexpr (S::splits > 1) {
        store_partial(acc, partial + int64_t(blockIdx.y) * M * N, m0 + wm, n0 + wn, M, N);
    } else {
        store_tile(acc, y, m0 + wm, n0 + wn, M, N, ldy);
    }
}

extern "C" __global__ void __launch_bounds__(Large::threads)
spmm(const __half* values, const uint32_t* meta, const __half* x, __half* y, float* partial, int M, int N, int K,
     int64_t ldx, int64_t ldy) {
    spmm_tile<Large>(values, meta, x, y, partial, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(Small::threads)
spmm_small(const __half* values, const uint32_t* meta, const __half* x, __half* y, float* partial, int M, int N, int K,
           int64_t ldx, int64_t ldy) {
    spmm_tile<Small>(values, meta, x, y, partial, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(256)
reduce(const float* partial, __half* y, int M, int N, int64_t ldy) {
    reduce_partials(partial, y, M, N, ldy, SPLITK);
}

extern "C" __global__ void __launch_bounds__(256)
reduce_small(const float* partial, __half* y, int M, int N, int64_t ldy) {
    reduce_partials(partial, y, M, N, ldy, S_SPLITK);
}
