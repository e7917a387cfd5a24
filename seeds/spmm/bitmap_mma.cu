/*---
about       = "Bitmap SpMM on tensor cores: a warp unpacks 16 x 16 tiles of W in registers, X by cp.async for all warps"
format      = { name = "bitmap", block = "16x16", order = "fragment" }
dtypes      = ["float16", "bfloat16"]
layouts     = ["row"]
constraints = [
    "BN // 8 * MT <= 32",
    "STAGES * BK * BN * 2 <= 98304",
]

[[launch]]
kernel = "spmm"
when   = "ldx % 8 == 0"
grid   = ["cdiv(M, 16 * MT * WARPS) * cdiv(N, BN)"]
block  = ["32 * WARPS"]
shared = "STAGES * BK * BN * 2"
args   = ["W.values", "W.bitmap", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[[launch]]
kernel = "spmm_unaligned"
when   = "ldx % 8 != 0"
grid   = ["cdiv(M, 16 * MT * WARPS) * cdiv(N, BN)"]
block  = ["32 * WARPS"]
shared = "STAGES * BK * BN * 2"
args   = ["W.values", "W.bitmap", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
WARPS  = { values = [1, 2, 4, 8],         default = 4 }
MT     = { values = [1, 2],               default = 1 }   # tiles of 16 rows of one warp
BN     = { values = [16, 32, 64, 128],    default = 64 }  # columns, which every warp takes whole
BK     = { values = [16, 32, 64],         default = 32 }
STAGES = { values = [2, 3, 4],            default = 3 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int THREADS = 32 * WARPS, NT = BN / 8, CHUNKS = BN / 8;

// 16-byte chunks are XOR-swizzled so that the eight rows one ldmatrix phase reads lie in different banks.
__device__ __forceinline__ int x_offset(int k, int chunk) {
    const int swizzle = CHUNKS >= 8 ? k & 7 : k * CHUNKS / 8 & (CHUNKS - 1);
    return k * BN + ((chunk ^ swizzle) << 3);
}

// Starts the copies of X[k0 .., n0 ..]; what lies past K or N becomes zero.
template <bool ALIGNED>
__device__ __forceinline__ void load_x(in_t* tile, const in_t* x, int k0, int n0, int N, int K, int64_t ldx) {
    if constexpr (ALIGNED) {
#pragma unroll
        for (int i = threadIdx.x; i < BK * CHUNKS; i += THREADS) {
            const int k = k0 + i / CHUNKS, n = n0 + i % CHUNKS * 8;
            const bool inside = k < K && n < N;  // N is a multiple of eight here
            const in_t* from = inside ? x + int64_t(k) * ldx + n : x;
            evo::cp_async16_zfill(tile + x_offset(i / CHUNKS, i % CHUNKS), from, inside ? 16 : 0);
        }
    } else {
#pragma unroll 1
        for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
            const int k = k0 + i / BN, n = n0 + i % BN;
            tile[x_offset(i / BN, i % BN / 8) + i % 8] =
                k < K && n < N ? x[int64_t(k) * ldx + n] : evo::from_float<in_t>(0.0f);
        }
    }
}

// The A operand of one tile from its bitmap: byte l says which of lane l's eight values are stored, and the bits before
// it how many come earlier.
__device__ __forceinline__ void unpack(uint32_t (&a)[4], const in_t* values, const uint32_t* bitmap, int begin) {
    const int lane = threadIdx.x % 32;
    const uint32_t word = __ldg(bitmap + lane / 4);
    int before = __popc(word);  // inclusive sum over the words, one for every four lanes
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, before, distance);
        if (lane >= distance) before += other;
    }
    const int shift = lane % 4 * 8;
    int at = begin + before - __popc(word >> shift);
    const uint32_t bits = word >> shift & 255;
    union { uint32_t words[4]; in_t items[8]; } fragment;
#pragma unroll
    for (int r = 0; r < 4; ++r) fragment.words[r] = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j)
        if (bits >> j & 1) fragment.items[j] = __ldg(values + at++);
#pragma unroll
    for (int r = 0; r < 4; ++r) a[r] = fragment.words[r];
}

// Applies the epilogue to a pair of neighbours in a row of Y and stores it.
__device__ __forceinline__ void store_pair(float first, float second, out_t* y, const evo::Epilogue& epilogue, int m,
                                           int n, int M, int N, int64_t ldy) {
    if (m >= M || n >= N) return;
    const int64_t at = evo::y_index(m, n, ldy);
    if (n + 1 < N && ldy % 2 == 0) {
        evo::Vector<out_t, 2> pair;
        pair.items[0] = epilogue(first, m, at), pair.items[1] = epilogue(second, m, at + 1);
        evo::store_vector(y + at, pair);
    } else {
        y[at] = epilogue(first, m, at);
        if (n + 1 < N) y[at + 1] = epilogue(second, m, at + 1);
    }
}

template <bool ALIGNED>
__device__ __forceinline__ void spmm_tile(const in_t* values, const uint32_t* bitmap, const int* indptr,
                                          const in_t* x, out_t* y, const evo::Epilogue& epilogue, int M, int N, int K,
                                          int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(128) unsigned char shared[];
    in_t* stages = reinterpret_cast<in_t*>(shared);
    // Row tiles first: blocks that run together share their columns of X in L2.
    const int tiles_m = evo::cdiv(M, 16 * MT * WARPS), n0 = blockIdx.x / tiles_m * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row0 = (blockIdx.x % tiles_m * WARPS + warp) * MT;  // in tiles of 16
    const int down = evo::cdiv(M, 16), across = evo::cdiv(K, 16), steps = evo::cdiv(K, BK);

    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < steps) load_x<ALIGNED>(stages + step * (BK * BN), x, step * BK, n0, N, K, ldx);
        evo::cp_async_commit();
    }
    float acc[MT][NT][4] = {};
    for (int step = 0; step < steps; ++step) {
        evo::cp_async_wait<STAGES - 2>();
        __syncthreads();
        const int ahead = step + STAGES - 1;
        if (ahead < steps) load_x<ALIGNED>(stages + ahead % STAGES * (BK * BN), x, ahead * BK, n0, N, K, ldx);
        evo::cp_async_commit();
        const in_t* x_tile = stages + step % STAGES * (BK * BN);
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            const int column = (step * BK + k) / 16;
            uint32_t a[MT][4];
            bool filled[MT], any = false;  // the same in all lanes: empty tiles cost nothing and meet no X
#pragma unroll
            for (int mt = 0; mt < MT; ++mt) {
                const int64_t block = int64_t(row0 + mt) * across + column;
                const bool inside = row0 + mt < down && column < across;
                const int begin = inside ? __ldg(indptr + block) : 0;
                filled[mt] = inside && begin < __ldg(indptr + block + 1);
                any |= filled[mt];
                if (filled[mt]) unpack(a[mt], values, bitmap + block * 8, begin);
            }
            if (!any) continue;
#pragma unroll
            for (int nt = 0; nt < NT; nt += 2) {
                uint32_t b[4];  // k and k + 8 of columns nt * 8.., then of the next eight
                evo::ldmatrix_x4_trans(b, x_tile + x_offset(k + lane % 16, nt + lane / 16));
#pragma unroll
                for (int mt = 0; mt < MT; ++mt) {
                    if (!filled[mt]) continue;
                    evo::mma_in(acc[mt][nt], a[mt], b[0], b[1]);
                    evo::mma_in(acc[mt][nt + 1], a[mt], b[2], b[3]);
                }
            }
        }
    }
    evo::cp_async_wait<0>();
#pragma unroll
    for (int mt = 0; mt < MT; ++mt)
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_pair(acc[mt][nt][half * 2], acc[mt][nt][half * 2 + 1], y, epilogue,
                           (row0 + mt) * 16 + half * 8 + lane / 4, n0 + nt * 8 + lane % 4 * 2, M, N, ldy);
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const uint32_t* bitmap, const int* indptr, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    spmm_tile<true>(values, bitmap, indptr, x, y, evo::Epilogue{bias, residual, scale}, M, N, K, ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm_unaligned(const in_t* values, const uint32_t* bitmap, const int* indptr, const in_t* x, out_t* y,
               const in_t* bias, const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    spmm_tile<false>(values, bitmap, indptr, x, y, evo::Epilogue{bias, residual, scale}, M, N, K, ldx, ldy);
}
