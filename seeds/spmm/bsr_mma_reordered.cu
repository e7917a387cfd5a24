/*---
about       = "BSR SpMM on tensor cores with rows and columns reordered into fewer blocks: X is gathered, Y scattered"
format      = { name = "bsr", r = "R", c = "C", order = "fragment", rows = "ROWS", columns = "COLUMNS" }
dtypes      = ["float16", "bfloat16"]
layouts     = ["row"]
constraints = [
    "BN % WN == 0 and BN // WN <= 16",
    "BN <= 256 * (BN // WN)",
    "R * WN <= 4096",
    "STAGES * SLOTS * C * (BN + R) * 2 <= 166912",
]

[[launch]]
kernel = "spmm"
when   = "ldx % 8 == 0"
grid   = ["cdiv(M, R) * cdiv(N, BN)"]
block  = ["32 * (BN // WN)"]
shared = "STAGES * SLOTS * C * (BN + R) * 2"
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "W.column_order", "X", "Y",
          "bias", "residual", "scale", "M", "N", "ldx", "ldy"]

[[launch]]
kernel = "spmm_unaligned"
when   = "ldx % 8 != 0"
grid   = ["cdiv(M, R) * cdiv(N, BN)"]
block  = ["32 * (BN // WN)"]
shared = "STAGES * SLOTS * C * (BN + R) * 2"
args   = ["W.values", "W.indices", "W.indptr", "W.row_order", "W.column_order", "X", "Y",
          "bias", "residual", "scale", "M", "N", "ldx", "ldy"]

[params]
R      = { values = [16, 32, 64],              default = 32 }  # the format's block
C      = { values = [16, 32, 64],              default = 32 }
BN     = { values = [16, 32, 64, 128, 256],    default = 128 }
WN     = { values = [8, 16, 32, 64],           default = 32 }  # columns of one warp, which takes all R rows
SLOTS  = { values = [1, 2, 4],                 default = 1 }   # stored blocks of one pipeline stage
STAGES = { values = [2, 3, 4, 5, 6],           default = 3 }
ROWS    = { values = [0, 1, 2],                 default = 2 }   # as they are, the longest first, alike together
COLUMNS = { values = [0, 1],                    default = 1 }   # as they are, alike together
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int WARPS = BN / WN, THREADS = 32 * WARPS;
constexpr int MT = R / 16, NT = WN / 8;  // tensor-core tiles of one warp

// One stored block of W and the C rows of X it meets. X: 16-byte chunks are XOR-swizzled so that the eight rows one
// ldmatrix phase reads lie in different banks. W: as the format's fragment order has it, one vector per lane and tile.
constexpr int SLOT = C * (BN + R);
constexpr int CHUNKS = BN / 8;

__device__ __forceinline__ int x_offset(int k, int chunk) {
    const int swizzle = CHUNKS >= 8 ? k & 7 : k * CHUNKS / 8 & (CHUNKS - 1);
    return k * BN + ((chunk ^ swizzle) << 3);
}

// Starts the copies of block `b` (block column `column`) and of the rows of X it meets into a slot; what lies past
// K or N becomes zero.
template <bool ALIGNED>
__device__ __forceinline__ void load_slot(in_t* slot, const in_t* values, const int* column_order, const in_t* x,
                                          int b, int column, int n0, int N, int64_t ldx) {
    const in_t* block = values + int64_t(b) * (R * C);
    for (int i = threadIdx.x; i < R * C / 8; i += THREADS) evo::cp_async16(slot + i * 8, block + i * 8);
    in_t* x_tile = slot + R * C;
    if constexpr (ALIGNED) {
#pragma unroll
        for (int i = threadIdx.x; i < C * CHUNKS; i += THREADS) {
            const int k = __ldg(column_order + column * C + i / CHUNKS), n = n0 + i % CHUNKS * 8;
            const bool inside = k >= 0 && n < N;  // N is a multiple of eight here
            const in_t* from = inside ? x + int64_t(k) * ldx + n : x;
            evo::cp_async16_zfill(x_tile + x_offset(i / CHUNKS, i % CHUNKS), from, inside ? 16 : 0);
        }
    } else {
#pragma unroll 1
        for (int i = threadIdx.x; i < C * BN; i += THREADS) {
            const int k = __ldg(column_order + column * C + i / BN), n = n0 + i % BN;
            x_tile[x_offset(i / BN, i % BN / 8) + i % 8] =
                k >= 0 && n < N ? x[int64_t(k) * ldx + n] : evo::from_float<in_t>(0.0f);
        }
    }
}

// region: multiply(acc, slot, wn)
// One stored block times its rows of X: k16 steps in pairs share an ldmatrix of X.
__device__ __forceinline__ void multiply(float (&acc)[MT][NT][4], const in_t* slot, int wn) {
    const int lane = threadIdx.x % 32;
    const in_t* x_tile = slot + R * C;
#pragma unroll
    for (int k = 0; k < C; k += 16) {
        uint32_t a[MT][4];
#pragma unroll
        for (int mt = 0; mt < MT; ++mt) {
            const uint4 words = *reinterpret_cast<const uint4*>(slot + ((mt * (C / 16) + k / 16) * 32 + lane) * 8);
            a[mt][0] = words.x, a[mt][1] = words.y, a[mt][2] = words.z, a[mt][3] = words.w;
        }
        if constexpr (NT % 2 == 0) {
#pragma unroll
            for (int nt = 0; nt < NT; nt += 2) {
                uint32_t b[4];  // k and k + 8 of columns nt * 8.., then of the next eight
                evo::ldmatrix_x4_trans(b, x_tile + x_offset(k + lane % 16, wn / 8 + nt + lane / 16));
#pragma unroll
                for (int mt = 0; mt < MT; ++mt) {
                    evo::mma_in(acc[mt][nt], a[mt], b[0], b[1]);
                    evo::mma_in(acc[mt][nt + 1], a[mt], b[2], b[3]);
                }
            }
        } else {
            uint32_t b[4];  // twice the same eight columns: WN = 8 has no others
            evo::ldmatrix_x4_trans(b, x_tile + x_offset(k + lane % 16, wn / 8));
#pragma unroll
            for (int mt = 0; mt < MT; ++mt) evo::mma_in(acc[mt][0], a[mt], b[0], b[1]);
        }
    }
}
// endregion

// Applies the epilogue to a pair of neighbours in a row of Y and stores it.
__device__ __forceinline__ void store_pair(float first, float second, out_t* y, const evo::Epilogue& epilogue, int m,
                                           int n, int N, int64_t ldy) {
    if (m < 0 || n >= N) return;
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
__device__ __forceinline__ void spmm_tile(const in_t* values, const int* indices, const int* indptr,
                                          const int* row_order, const int* column_order, const in_t* x, out_t* y,
                                          const evo::Epilogue& epilogue, int M, int N, int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(128) unsigned char shared[];
    in_t* slots = reinterpret_cast<in_t*>(shared);
    // Row tiles first: blocks that run together share their columns of X in L2.
    const int tiles_m = evo::cdiv(M, R), row = blockIdx.x % tiles_m, n0 = blockIdx.x / tiles_m * BN;
    const int begin = indptr[row], count = indptr[row + 1] - begin, steps = evo::cdiv(count, SLOTS);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wn = warp * WN;

    const auto load = [&](int step) {
        in_t* stage = slots + step % STAGES * (SLOTS * SLOT);
#pragma unroll
        for (int s = 0; s < SLOTS; ++s) {
            const int b = step * SLOTS + s;
            if (b < count)
                load_slot<ALIGNED>(stage + s * SLOT, values, column_order, x, begin + b, __ldg(indices + begin + b),
                                   n0, N, ldx);
        }
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
        const in_t* stage = slots + step % STAGES * (SLOTS * SLOT);
#pragma unroll
        for (int s = 0; s < SLOTS; ++s)
            if (step * SLOTS + s < count) multiply(acc, stage + s * SLOT, wn);
    }
    evo::cp_async_wait<0>();
#pragma unroll
    for (int mt = 0; mt < MT; ++mt)
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_pair(acc[mt][nt][half * 2], acc[mt][nt][half * 2 + 1], y, epilogue,
                           __ldg(row_order + row * R + mt * 16 + half * 8 + lane / 4),
                           n0 + wn + nt * 8 + lane % 4 * 2, N, ldy);
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const in_t* values, const int* indices, const int* indptr, const int* row_order, const int* column_order,
     const in_t* x, out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N, int64_t ldx,
     int64_t ldy) {
    spmm_tile<true>(values, indices, indptr, row_order, column_order, x, y, evo::Epilogue{bias, residual, scale}, M, N,
                    ldx, ldy);
}

extern "C" __global__ void __launch_bounds__(THREADS)
spmm_unaligned(const in_t* values, const int* indices, const int* indptr, const int* row_order,
               const int* column_order, const in_t* x, out_t* y, const in_t* bias, const out_t* residual, float scale,
               int M, int N, int64_t ldx, int64_t ldy) {
    spmm_tile<false>(values, indices, indptr, row_order, column_order, x, y, evo::Epilogue{bias, residual, scale}, M,
                     N, ldx, ldy);
}
