/*---
about       = "2:4 SpMM on dense tensor cores: W is written out densely in shared memory, then mma m16n8k16"
format      = { name = "nm24", values = "row" }
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
require     = ["K % 64 == 0"]
constraints = [
    "BM % WM == 0 and BN % WN == 0 and BK % (32 * WK) == 0",
    "WM * WN <= 4096",
    "BK <= 256 * (BM // WM) * (BN // WN) * WK",
    "(BM // WM) * (BN // WN) * WK <= 16",
    "BM * BN <= 128 * 32 * (BM // WM) * (BN // WN)",
    "max(STAGES * (2 * BM * BK + 2 * BN * BK), 4 * (WK - 1) * BM * BN) <= 232448",
]

[[workspace]]
name  = "partial"                # fp32 contributions of the splits, [split][n][m]
bytes = "16 + 4 * M * N * (SPLITK > 1) * SPLITK"
init  = "poison"

[[launch]]
kernel = "spmm"
when   = "1"
grid   = ["cdiv(M, BM) * cdiv(N, BN)", "SPLITK"]
block  = ["32 * (BM // WM) * (BN // WN) * WK"]
shared = "max(STAGES * (2 * BM * BK + 2 * BN * BK), 4 * (WK - 1) * BM * BN)"
args   = ["W.values", "W.meta", "X", "Y", "partial", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "reduce"
when   = "SPLITK > 1"
grid   = ["max(1, min(cdiv(M * N, 1024), 8 * SMS))"]
block  = ["256"]
shared = "0"
args   = ["partial", "Y", "M", "N", "ldy"]

[params]
BM     = { values = [16, 32, 64, 128],    default = 64 }
BN     = { values = [8, 16, 32, 64, 128], default = 64 }
BK     = { values = [64, 128, 256],       default = 64 }
WM     = { values = [16, 32, 64],         default = 32 }
WN     = { values = [8, 16, 32, 64],      default = 32 }
WK     = { values = [1, 2, 4, 8],         default = 1 }  # warps that share a tile along K
STAGES = { values = [2, 3, 4],            default = 2 }
SPLITK = { values = [1, 2, 4, 8],         default = 1 }
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
// X tile in shared memory, ROWS columns of X by COLS values of k, stored as it comes.
template <int ROWS, int COLS, int THREADS>
struct XTile {
    // Where chunk `chunk` (eight values of k) of a row lies, in elements.
    static __device__ __forceinline__ int offset(int row, int chunk) { return row * COLS + chunk * 8; }

    // Starts the copy of X[n0.., k0..]; what lies past N or k_end becomes zero.
    static __device__ __forceinline__ void load(__half* tile, const __half* x, int n0, int k0, int N, int k_end,
                                                int64_t ldx) {
        for (int c = threadIdx.x % THREADS; c < ROWS * COLS / 8; c += THREADS) {
            const int n = n0 + c / (COLS / 8), k = k0 + c % (COLS / 8) * 8;
            const bool inside = n < N && k < k_end;
            evo::cp_async16_zfill(tile + c * 8, inside ? x + n * ldx + k : x, inside ? 16 : 0);
        }
    }

    // B operand of eight columns of X (row..row+7) and 32 values of k: register i holds k + 8 * i + 2 * (lane % 4)
    // and the next.
    static __device__ __forceinline__ void fragment(uint32_t (&b)[4], const __half* tile, int row, int k) {
        const int lane = threadIdx.x % 32;
        evo::ldmatrix_x4(b, tile + (row + lane % 8) * COLS + k + lane / 8 * 8);
    }
};
// endregion

// W tile of one stage, written out densely: BM rows of BK values, chunks XOR-swizzled.
template <class S>
struct WTile {
    static constexpr int BYTES = S::bm * S::bk * 2;

    static __device__ __forceinline__ int offset(int row, int chunk) {
        return row * S::bk + ((chunk ^ (row & 7)) << 3);
    }

    // Puts the two stored values of a group of four (a half2) at their positions; the other two become zero.
    static __device__ __forceinline__ uint2 expand(uint32_t pair, uint32_t indices) {
        const uint32_t first = (indices & 3) * 8, second = (indices >> 2 & 3) * 8;
        // One selector byte per position: 0x54 takes zero, 0x10 the first stored value, 0x32 the second.
        const uint32_t select = 0x54545454u ^ (0x44u << first) ^ (0x66u << second);
        return make_uint2(__byte_perm(pair, 0, select & 0xffff), __byte_perm(pair, 0, select >> 16));
    }

    static __device__ __forceinline__ void load(unsigned char* stage, const __half* values, const uint32_t* meta,
                                                int m0, int k0, int M, int K, int k_end) {
        __half* tile = reinterpret_cast<__half*>(stage);
        for (int c = threadIdx.x; c < S::bm * S::bk / 16; c += S::threads) {
            const int row = c / (S::bk / 16), part = c % (S::bk / 16);
            const int m = m0 + row, k = k0 + part * 16;
            uint4 low = make_uint4(0, 0, 0, 0), high = low;
            if (m < M && k < k_end) {
                const uint4 v = *reinterpret_cast<const uint4*>(values + int64_t(m) * (K / 2) + k / 2);
                // Word of rows m % 8 and m % 8 + 8 (low and high half) for these 16 values of k.
                const uint32_t word = meta[(int64_t(m / 16) * (K / 64) + k / 64) * 32 + m % 8 * 4 + part % 4];
                const uint32_t e = word >> (m / 8 % 2 * 16);
                const uint2 g0 = expand(v.x, e), g1 = expand(v.y, e >> 4);
                const uint2 g2 = expand(v.z, e >> 8), g3 = expand(v.w, e >> 12);
                low = make_uint4(g0.x, g0.y, g1.x, g1.y);
                high = make_uint4(g2.x, g2.y, g3.x, g3.y);
            }
            *reinterpret_cast<uint4*>(tile + offset(row, part * 2)) = low;
            *reinterpret_cast<uint4*>(tile + offset(row, part * 2 + 1)) = high;
        }
    }

    // A operand of rows row..row+15 and values k..k+15 of the tile.
    static __device__ __forceinline__ void fragment(uint32_t (&a)[4], const unsigned char* stage, int row, int k) {
        const int lane = threadIdx.x % 32;
        evo::ldmatrix_x4(a, reinterpret_cast<const __half*>(stage) + offset(row + lane % 16, k / 8 + lane / 16));
    }
};

// region: tile_order(block, tiles_m, tiles_n: tile_m, tile_n)
// Neighbouring blocks take neighbouring columns of X, so they share the W tile.
__device__ __forceinline__ void tile_of_block(int block, int tiles_m, int tiles_n, int& tile_m, int& tile_n) {
    tile_m = block / tiles_n;
    tile_n = block % tiles_n;
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
// Sums the split-K partial results in a fixed order, one output per thread and step.
__device__ __forceinline__ void reduce_partials(const float* partial, __half* y, int M, int N, int64_t ldy,
                                                int splits) {
    const int64_t total = int64_t(M) * N;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += int64_t(gridDim.x) * blockDim.x) {
        float sum = 0.0f;
        for (int s = 0; s < splits; ++s) sum += partial[s * total + i];
        y[i / M * ldy + i % M] = __float2half_rn(sum);
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

// Zeros that W does not store must not meet X, yet written out densely they turn an Inf or NaN of X into NaN: such
// results are computed again from the stored values alone.
__device__ __forceinline__ float dot_stored(const __half* values, const uint32_t* meta, const __half* column, int m,
                                            int k_begin, int k_end, int K) {
    const uint32_t* words = meta + int64_t(m / 16) * (K / 64) * 32 + m % 8 * 4;
    float sum = 0.0f;
    for (int k = k_begin; k < k_end; k += 2) {
        const uint32_t word = words[k / 64 * 32 + k / 16 % 4] >> (m / 8 % 2 * 16);
        const int index = k / 4 * 4 + (word >> (k / 2 % 8 * 2) & 3);
        sum += __half2float(values[int64_t(m) * (K / 2) + k / 2]) * __half2float(column[index]);
    }
    return sum;
}

template <class S>
__device__ __forceinline__ void repair(float (&acc)[S::mt][S::nt][4], const __half* values, const uint32_t* meta,
                                       const __half* x, int m0, int n0, int M, int N, int K, int k_begin, int k_end,
                                       int64_t ldx) {
    constexpr int COUNT = S::mt * S::nt * 4;
    bool broken = false;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) broken |= isnan(acc[i / 4 / S::nt][i / 4 % S::nt][i % 4]);
    if (!broken) return;
#pragma unroll 1
    for (int at = 0; at < COUNT; ++at) {
        const int lane = threadIdx.x % 32;
        const int m = m0 + at / 4 / S::nt * 16 + lane / 4 + at % 4 / 2 * 8;
        const int n = n0 + at / 4 % S::nt * 8 + lane % 4 * 2 + at % 2;
        bool wanted = false;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) wanted |= i == at && isnan(acc[i / 4 / S::nt][i / 4 % S::nt][i % 4]);
        if (!wanted || m >= M || n >= N) continue;
        const float sum = dot_stored(values, meta, x + n * ldx, m, k_begin, k_end, K);
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (i == at) acc[i / 4 / S::nt][i / 4 % S::nt][i % 4] = sum;
    }
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
        for (int step32 = 0; step32 < S::bk / 32 / S::wk; ++step32)
            multiply<S>(acc, stage, x_tile, wm, wn, (step32 * S::wk + part) * 32);
    }
    evo::cp_async_wait<0>();
    combine_warps<S>(acc, reinterpret_cast<float*>(shared), part, tile);
    if (part > 0) return;
    repair<S>(acc, values, meta, x, m0 + wm, n0 + wn, M, N, K, k_begin, k_end, ldx);
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

extern "C" __global__ void __launch_bounds__(256)
reduce(const float* partial, __half* y, int M, int N, int64_t ldy) {
    reduce_partials(partial, y, M, N, ldy, SPLITK);
}
