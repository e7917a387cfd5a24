/*---
about       = "2:4 SpMM of bfloat16 on sparse tensor cores: W in fragment order to registers, X tiles by cp.async"
format      = { name = "nm24", values = "fragment" }
dtypes      = ["bfloat16"]
constraints = ["MT * BN <= 256", "STAGES * BN * (BK + 8) * 2 <= 166912"]

[[launch]]
kernel = "spmm"
when   = "ldx % 8 == 0"
grid   = ["cdiv(M, 16 * MT * WARPS) * cdiv(N, BN)"]
block  = ["32 * WARPS"]
shared = "STAGES * BN * (BK + 8) * 2"
args   = ["W.values", "W.meta", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "spmm_unaligned"
when   = "ldx % 8 != 0"
grid   = ["cdiv(M, 16 * MT * WARPS) * cdiv(N, BN)"]
block  = ["32 * WARPS"]
shared = "STAGES * BN * (BK + 8) * 2"
args   = ["W.values", "W.meta", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
WARPS  = { values = [1, 2, 4, 8],           default = 4 }
MT     = { values = [1, 2, 4],              default = 1 }  # tiles of 16 rows of a warp
BN     = { values = [8, 16, 32, 64, 128],   default = 32 }
BK     = { values = [64, 128, 256],         default = 128 }
STAGES = { values = [2, 3, 4],              default = 3 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int NT = BN / 8, THREADS = 32 * WARPS;
constexpr int LD = BK + 8;  // elements of a row of the X tile: eight columns lie in different banks

// mma.sp::ordered_metadata.m16n8k32 of bf16 (sm_80+); HALF picks which 32 of the 64 values of k of a metadata word.
template <int HALF>
__device__ __forceinline__ void mma_sp(float (&d)[4], const uint4& a, const uint32_t (&b)[4], uint32_t metadata) {
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
                   "r"(metadata), "n"(HALF));
}

// region: load(tile, x, n0, k0)
// X[k0.., n0..] as BN rows of BK values of k; what lies past N or K becomes zero.
template <bool ALIGNED>
__device__ __forceinline__ void load_tile(in_t* tile, const in_t* x, int n0, int k0, int N, int K, int64_t ldx) {
    if constexpr (ALIGNED && !evo::X_ROW) {
#pragma unroll
        for (int i = threadIdx.x; i < BN * BK / 8; i += THREADS) {
            const int n = n0 + i / (BK / 8), k = k0 + i % (BK / 8) * 8;
            const int bytes = n < N ? 2 * min(8, max(0, K - k)) : 0;
            evo::cp_async16_zfill(tile + i / (BK / 8) * LD + i % (BK / 8) * 8,
                                  bytes > 0 ? x + int64_t(n) * ldx + k : x, bytes);
        }
    } else {
#pragma unroll 1
        for (int i = threadIdx.x; i < BN * BK; i += THREADS) {
            const int row = evo::X_ROW ? i % BN : i / BK, column = evo::X_ROW ? i / BN : i % BK;
            const int n = n0 + row, k = k0 + column;
            tile[row * LD + column] = n < N && k < K ? x[evo::x_index(k, n, ldx)] : evo::from_float<in_t>(0.0f);
        }
    }
}
// endregion

// region: multiply(acc, a, e, tile, k)
// One k32 step of a warp: register i of B holds k + 8 * i + 2 * (lane % 4) and the next of column lane / 4.
template <int HALF>
__device__ __forceinline__ void multiply(float (&acc)[MT][NT][4], const uint4 (&a)[MT], const uint32_t (&e)[MT],
                                         const in_t* tile, int k) {
    const int lane = threadIdx.x % 32;
    const in_t* from = tile + lane / 4 * LD + k + lane % 4 * 2;
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
        uint32_t b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] = *reinterpret_cast<const uint32_t*>(from + nt * 8 * LD + i * 8);
#pragma unroll
        for (int mt = 0; mt < MT; ++mt) mma_sp<HALF>(acc[mt][nt], a[mt], b, e[mt]);
    }
}
// endregion

template <bool ALIGNED>
__device__ __forceinline__ void spmm_tile(const in_t* values, const uint32_t* meta, const in_t* x, out_t* y,
                                          const evo::Epilogue& epilogue, int M, int N, int K, int64_t ldx,
                                          int64_t ldy) {
    extern __shared__ __align__(128) unsigned char shared[];
    in_t* tiles = reinterpret_cast<in_t*>(shared);
    // Row tiles first: blocks that run together share their columns of X in L2.
    const int rows = 16 * MT * WARPS, tiles_m = evo::cdiv(M, rows), n0 = blockIdx.x / tiles_m * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = (blockIdx.x % tiles_m * WARPS + warp) * MT, last = evo::cdiv(M, 16) - 1;
    const int blocks = evo::cdiv(K, 64), steps = evo::cdiv(K, BK);

    const auto load = [&](int step) {
        load_tile<ALIGNED>(tiles + step % STAGES * (BN * LD), x, n0, step * BK, N, K, ldx);
    };
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < steps) load(step);
        evo::cp_async_commit();
    }
    float acc[MT][NT][4] = {};
    for (int step = 0; step < steps; ++step) {
        evo::cp_async_wait<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps) load(step + STAGES - 1);
        evo::cp_async_commit();
        const in_t* tile = tiles + step % STAGES * (BN * LD);
#pragma unroll
        for (int block = 0; block < BK / 64; ++block) {
            const int kb = step * (BK / 64) + block;
            if (kb >= blocks) break;
            uint4 low[MT], high[MT];
            uint32_t e[MT];
#pragma unroll
            for (int mt = 0; mt < MT; ++mt) {
                const int64_t at = int64_t(min(first + mt, last)) * blocks + kb;
                const uint4* words = reinterpret_cast<const uint4*>(values + at * 512) + lane;
                low[mt] = __ldg(words), high[mt] = __ldg(words + 32), e[mt] = __ldg(meta + at * 32 + lane);
            }
            multiply<0>(acc, low, e, tile, block * 64);
            multiply<1>(acc, high, e, tile, block * 64 + 32);
        }
    }
    evo::cp_async_wait<0>();
#pragma unroll
    for (int mt = 0; mt < MT; ++mt)
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int m = (first + mt) * 16 + i / 2 * 8 + lane / 4, n = n0 + nt * 8 + lane % 4 * 2 + i % 2;
                if (m >= M || n >= N) continue;
                const int64_t at = evo::y_index(m, n, ldy);
                y[at] = epilogue(acc[mt][nt][i], m, at);
            }
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const uint32_t* meta, const in_t* x, out_t* y, const in_t* bias, const out_t* residual,
     float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    spmm_tile<true>(values, meta, x, y, evo::Epilogue{bias, residual, scale}, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm_unaligned(const in_t* values, const uint32_t* meta, const in_t* x, out_t* y, const in_t* bias,
               const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    spmm_tile<false>(values, meta, x, y, evo::Epilogue{bias, residual, scale}, M, N, K, ldx, ldy);
}
