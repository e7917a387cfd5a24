/*---
about       = "Fused dense GEMM for few output tiles: K split over blocks, fp32 parts in memory, a second kernel sums"
format      = "dense"
dtypes      = ["float16", "bfloat16"]
constraints = [
    "BM % WM == 0 and BN % WN == 0",
    "WM * WN <= 4096",
    "(BM // WM) * (BN // WN) <= 16",
    "BK <= 256 * (BM // WM) * (BN // WN) and BN <= 256 * (BM // WM) * (BN // WN)",
    "STAGES * (BM + BN) * BK * 2 <= 166912",
]

[[workspace]]
name  = "partial"  # [SPLITK], then as Y: each split's share of the sums
bytes = "SPLITK * M * N * 4"
init  = "poison"

[[launch]]
kernel = "gemm"
when   = "K % 8 == 0 and ldx % 8 == 0"
grid   = ["cdiv(M, BM) * cdiv(N, BN)", "SPLITK"]
block  = ["32 * (BM // WM) * (BN // WN)"]
shared = "STAGES * (BM + BN) * BK * 2"
args   = ["W.values", "X", "partial", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "gemm_unaligned"
when   = "K % 8 != 0 or ldx % 8 != 0"
grid   = ["cdiv(M, 64) * cdiv(N, 64)", "SPLITK"]
block  = ["128"]
shared = "32768"
args   = ["W.values", "X", "partial", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "reduce"
grid   = ["cdiv(M * N, 4 * THREADS_R)"]
block  = ["THREADS_R"]
args   = ["partial", "Y", "bias", "residual", "scale", "M", "N", "ldy"]

[params]
BM        = { values = [16, 32, 64, 128],      default = 64 }
BN        = { values = [8, 16, 32, 64, 128],   default = 16 }
BK        = { values = [64, 128, 256],         default = 128 }
WM        = { values = [16, 32, 64],           default = 16 }
WN        = { values = [8, 16, 32, 64],        default = 16 }
STAGES    = { values = [2, 3, 4, 5],           default = 4 }
SPLITK    = { values = [1, 2, 3, 4, 6, 8, 16], default = 4 }
GROUP     = { values = [1, 2, 4, 8, 16],       default = 8 }  # row tiles walked before the next column tile
THREADS_R = { values = [64, 128, 256],         default = 128 }  # of the block that sums
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

template <int Bm, int Bn, int Bk, int Wm, int Wn, int Stages>
struct Shape {
    static constexpr int bm = Bm, bn = Bn, bk = Bk, stages = Stages;  // the block's tile, its step along K
    static constexpr int wm = Wm, wn = Wn;                            // a warp's tile
    static constexpr int mt = wm / 16, nt = wn / 8;                   // tensor-core tiles of one warp
    static constexpr int threads = 32 * (bm / wm) * (bn / wn);
};
using Tuned = Shape<BM, BN, BK, WM, WN, STAGES>;
using Unaligned = Shape<64, 64, 64, 32, 32, 2>;

// A tile of LINES lines of LENGTH contiguous elements in shared memory; 16-byte chunks are XOR-swizzled so that the
// eight lines one ldmatrix phase reads lie in different banks.
template <int LINES, int LENGTH, int THREADS>
struct Tile {
    static constexpr int CHUNKS = LENGTH / 8;

    static __device__ __forceinline__ int offset(int line, int chunk) {
        const int swizzle = CHUNKS >= 8 ? line & 7 : line * CHUNKS / 8 & (CHUNKS - 1);
        return line * LENGTH + ((chunk ^ swizzle) << 3);
    }

    // Starts the copy of source[line0.., at0..]; what lies past `lines` or `end` becomes zero.
    static __device__ __forceinline__ void load(in_t* tile, const in_t* source, int line0, int at0, int lines, int end,
                                                int64_t ld) {
        constexpr int STEP = THREADS / CHUNKS;  // a thread keeps its chunk and goes STEP lines on
        static_assert(THREADS % CHUNKS == 0, "a line of the tile must not have more chunks than there are threads");
        const int chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS, at = at0 + chunk * 8;
        const int bytes = min(max(end - at, 0), 8) * 2;
#pragma unroll
        for (int i = 0; i < evo::cdiv(LINES, STEP); ++i) {
            const int line = first + i * STEP;
            if (LINES % STEP != 0 && line >= LINES) break;
            const bool inside = line0 + line < lines && bytes > 0;
            const in_t* from = inside ? source + int64_t(line0 + line) * ld + at : source;
            evo::cp_async16_zfill(tile + offset(line, chunk), from, inside ? bytes : 0);
        }
    }

    // The same element by element, for lines that do not start at multiples of 16 bytes.
    static __device__ __forceinline__ void load_unaligned(in_t* tile, const in_t* source, int line0, int at0, int lines,
                                                          int end, int64_t ld) {
        for (int i = threadIdx.x; i < LINES * LENGTH; i += THREADS) {
            const int line = i / LENGTH, at = i % LENGTH;
            const bool inside = line0 + line < lines && at0 + at < end;
            tile[offset(line, at / 8) + at % 8] =
                inside ? source[int64_t(line0 + line) * ld + at0 + at] : evo::from_float<in_t>(0.0f);
        }
    }
};

template <class S>
using WTile = Tile<S::bm, S::bk, S::threads>;  // lines are rows of W
template <class S>
using XTile = Tile<evo::X_ROW ? S::bk : S::bn, evo::X_ROW ? S::bn : S::bk, S::threads>;  // rows or columns of X

// B operand of eight columns n.. and 32 values k.. of X: registers 2 * i and 2 * i + 1 serve the i-th k16 step.
template <class S>
__device__ __forceinline__ void x_fragment(uint32_t (&b)[4], const in_t* tile, int n, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (evo::X_ROW)
        evo::ldmatrix_x4_trans(b, tile + XTile<S>::offset(k + lane, n / 8));
    else
        evo::ldmatrix_x4(b, tile + XTile<S>::offset(n + lane % 8, k / 8 + lane / 8));
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

// region: multiply(acc, w_tile, x_tile, wm, wn)
// One step along K of a warp tile: all k32 parts of the stage.
template <class S>
__device__ __forceinline__ void multiply(float (&acc)[S::mt][S::nt][4], const in_t* w_tile, const in_t* x_tile, int wm,
                                         int wn) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < S::bk; k += 32) {
        uint32_t a[2][S::mt][4];
#pragma unroll
        for (int mt = 0; mt < S::mt; ++mt)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                evo::ldmatrix_x4(a[i][mt],
                                 w_tile + WTile<S>::offset(wm + mt * 16 + lane % 16, k / 8 + 2 * i + lane / 16));
#pragma unroll
        for (int nt = 0; nt < S::nt; ++nt) {
            uint32_t b[4];
            x_fragment<S>(b, x_tile, wn + nt * 8, k);
#pragma unroll
            for (int mt = 0; mt < S::mt; ++mt) {
                evo::mma_in(acc[mt][nt], a[0][mt], b[0], b[1]);
                evo::mma_in(acc[mt][nt], a[1][mt], b[2], b[3]);
            }
        }
    }
}
// endregion

// Stores two sums that are neighbours along n into a split's part, which lies as Y does.
__device__ __forceinline__ void store_pair(float first, float second, float* part, int m0, int n0, int M, int N,
                                           int64_t ldy) {
    const int lane = threadIdx.x % 32, m = m0 + lane / 4, n = n0 + lane % 4 * 2;
    if (m >= M || n >= N) return;
    float* at = part + evo::y_index(m, n, ldy);
    if (evo::Y_ROW && n + 1 < N && ldy % 2 == 0) {
        // a part starts at a multiple of M * N floats: even where ldy = N is
        *reinterpret_cast<float2*>(at) = make_float2(first, second);
    } else {
        *at = first;
        if (n + 1 < N) part[evo::y_index(m, n + 1, ldy)] = second;
    }
}

template <class S, bool ALIGNED>
__device__ __forceinline__ void gemm_tile(const in_t* values, const in_t* x, float* partial, int M, int N, int K,
                                          int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(128) unsigned char shared[];
    constexpr int STAGE = (S::bm + S::bn) * S::bk;  // elements

    int tile_m, tile_n;
    tile_of_block(blockIdx.x, evo::cdiv(M, S::bm), evo::cdiv(N, S::bn), tile_m, tile_n);
    const int m0 = tile_m * S::bm, n0 = tile_n * S::bn, warp = threadIdx.x / 32;
    const int wm = warp % (S::bm / S::wm) * S::wm, wn = warp / (S::bm / S::wm) * S::wn;
    const int share = evo::cdiv(evo::cdiv(K, S::bk), SPLITK) * S::bk;  // of K, for each split
    const int k_begin = min(int(blockIdx.y) * share, K), k_end = min(k_begin + share, K);
    const int steps = evo::cdiv(k_end - k_begin, S::bk);

    const auto load = [&](int step) {
        in_t* w_tile = reinterpret_cast<in_t*>(shared) + step % S::stages * STAGE;
        in_t* x_tile = w_tile + S::bm * S::bk;
        const int k0 = k_begin + step * S::bk;
        const int line0 = evo::X_ROW ? k0 : n0, at0 = evo::X_ROW ? n0 : k0;
        const int lines = evo::X_ROW ? k_end : N, end = evo::X_ROW ? N : k_end;
        if constexpr (ALIGNED) {
            WTile<S>::load(w_tile, values, m0, k0, M, k_end, K);
            XTile<S>::load(x_tile, x, line0, at0, lines, end, ldx);
        } else {
            WTile<S>::load_unaligned(w_tile, values, m0, k0, M, k_end, K);
            XTile<S>::load_unaligned(x_tile, x, line0, at0, lines, end, ldx);
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
        const in_t* w_tile = reinterpret_cast<const in_t*>(shared) + step % S::stages * STAGE;
        multiply<S>(acc, w_tile, w_tile + S::bm * S::bk, wm, wn);
    }
    evo::cp_async_wait<0>();
    float* part = partial + int64_t(blockIdx.y) * M * N;
#pragma unroll
    for (int mt = 0; mt < S::mt; ++mt)
#pragma unroll
        for (int nt = 0; nt < S::nt; ++nt)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_pair(acc[mt][nt][half * 2], acc[mt][nt][half * 2 + 1], part, m0 + wm + mt * 16 + half * 8,
                           n0 + wn + nt * 8, M, N, ldy);
}

extern "C" __global__ void __launch_bounds__(Tuned::threads)
gemm(const in_t* values, const in_t* x, float* partial, int M, int N, int K, int64_t ldx, int64_t ldy) {
    gemm_tile<Tuned, true>(values, x, partial, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(Unaligned::threads)
gemm_unaligned(const in_t* values, const in_t* x, float* partial, int M, int N, int K, int64_t ldx, int64_t ldy) {
    gemm_tile<Unaligned, false>(values, x, partial, M, N, K, ldx, ldy);
}

// region: reduce(partial, y, epilogue, M, N, ldy)
// Y is contiguous (ldy is its row or column), so four neighbours are four consecutive sums of every part.
extern "C" __global__ void __launch_bounds__(THREADS_R)
reduce(const float* partial, out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N,
       int64_t ldy) {
    const int64_t total = int64_t(M) * N, at = (int64_t(blockIdx.x) * THREADS_R + threadIdx.x) * 4;
    if (at >= total) return;
    const evo::Epilogue epilogue{bias, residual, scale};
    const bool whole = total % 4 == 0;
    float sums[4] = {};
#pragma unroll
    for (int split = 0; split < SPLITK; ++split) {
        const float* part = partial + split * total + at;
        if (whole) {
            const float4 four = __ldcs(reinterpret_cast<const float4*>(part));  // read once
            sums[0] += four.x, sums[1] += four.y, sums[2] += four.z, sums[3] += four.w;
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (at + i < total) sums[i] += part[i];
        }
    }
    evo::Vector<out_t, 4> four;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int64_t line = (at + i) / ldy;
        const int m = int(evo::Y_ROW ? line : at + i - line * ldy);
        four.items[i] = at + i < total ? epilogue(sums[i], m, at + i) : evo::from_float<out_t>(0.0f);
    }
    if (whole) {
        evo::store_vector(y + at, four);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (at + i < total) y[at + i] = four.items[i];
    }
}
// endregion
