/*---
about       = "Block-sparse SpMM on Hopper: block rows share tiles of X in a ring, each has a warpgroup and W by itself"
format      = { name = "bsr", r = "R", c = "C", order = "core" }
dtypes      = ["float16", "bfloat16"]
layouts     = ["row"]
archs       = ["sm_90a"]
require     = ["K <= 16384"]
constraints = ["NT * R <= 256", "STAGES * 128 * C * NT + ROWS * W_STAGES * 2 * R * C * WB <= 200 * 1024"]

[[tensormap]]  # C x 64 of X
name        = "x_map"
tensor      = "X"
dims        = ["N", "K"]
strides     = ["2 * ldx"]
box         = ["64", "C"]
swizzle     = "128B"
l2promotion = "256B"

[[launch]]
kernel = "spmm"
when   = "ldx % 8 == 0"
grid   = ["cdiv(M, ROWS * R) * cdiv(N, 64 * NT)"]
block  = ["128 * ROWS + 32 * NT"]
shared = """max(STAGES * 128 * C * NT + ROWS * W_STAGES * 2 * R * C * WB, 128 * NT * ROWS * R)
            + 16 * (STAGES + ROWS * W_STAGES)"""
args   = ["x_map", "W.values", "W.indices", "W.indptr", "Y", "bias", "residual", "scale", "M", "N", "K", "ldy"]

[[launch]]
kernel = "spmm_unaligned"
when   = "ldx % 8 != 0"
grid   = ["cdiv(M, R) * cdiv(N, 128 * min(128 // R, 4))"]
block  = ["128"]
args   = ["W.values", "W.indices", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
R        = { values = [16, 32, 64],          default = 32 }  # the format's block
C        = { values = [16, 32, 64],          default = 32 }
ROWS     = { values = [1, 2, 3, 4, 5, 6],    default = 2 }   # block rows of a block, a warpgroup each
NT       = { values = [1, 2, 4, 8],          default = 2 }   # 64 columns each
STAGES   = { values = [2, 3, 4, 6, 8, 12],   default = 6 }   # tiles of X in the ring
WB       = { values = [1, 2, 4, 8],          default = 4 }   # blocks of W that a warpgroup gets at a time
W_STAGES = { values = [2, 3, 4],             default = 2 }   # so many of these pieces are there or on their way
---*/
#include "task.cuh"
#include "wgmma.cuh"

using evo::in_t;
using evo::out_t;

constexpr int BN = 64 * NT, CONSUMERS = 128 * ROWS, THREADS = CONSUMERS + 32 * NT;
constexpr int X_TILE = C * 128, STAGE_BYTES = X_TILE * NT, BLOCK_BYTES = R * C * 2, PIECE_BYTES = BLOCK_BYTES * WB;
constexpr int W_RING = STAGES * STAGE_BYTES;  // where the rings of W begin, one for each warpgroup
constexpr int RING_BYTES = evo::larger(W_RING + ROWS * W_STAGES * PIECE_BYTES, ROWS * R * BN * 2);  // later: tile of Y
constexpr int COLUMNS = 16384 / C;  // block columns, at most
constexpr bool BFLOAT16 = EVO_IN == EVO_BFLOAT16;

// What a block works on. A step is a block column of W that one of the block's rows has.
struct Work {
    int first, n0, columns;  // first block row; first column of Y; block columns of W
    unsigned char* ring;
    uint64_t *full, *empty, *w_full, *w_empty;
    uint32_t* masks;         // of each step: bit i stands for the block's row i
    int* order;              // its block column

    __device__ __forceinline__ Work(unsigned char* shared, uint32_t* steps, int M, int K) {
        const int tiles_m = evo::cdiv(M, ROWS * R);
        first = blockIdx.x % tiles_m * ROWS;
        n0 = blockIdx.x / tiles_m * BN;
        columns = evo::cdiv(K, C);
        ring = shared;
        full = reinterpret_cast<uint64_t*>(shared + RING_BYTES), empty = full + STAGES;
        w_full = empty + STAGES, w_empty = w_full + ROWS * W_STAGES;
        masks = steps;
        order = reinterpret_cast<int*>(steps + COLUMNS);
    }
};

// region: plan(work, indices, indptr, rows)
// Which of the block's rows have which block column, and the steps in the order of the columns; how many.
__device__ __forceinline__ int plan(const Work& work, const int* indices, const int* indptr, int rows) {
    __shared__ int count;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < work.columns; i += THREADS) work.masks[i] = 0;
    __syncthreads();
    for (int i = warp; i < ROWS && work.first + i < rows; i += THREADS / 32) {
        const int end = __ldg(indptr + work.first + i + 1);
        for (int at = __ldg(indptr + work.first + i) + lane; at < end; at += 32)
            atomicOr(work.masks + __ldg(indices + at), 1u << i);
    }
    __syncthreads();
    if (warp == 0) {
        int before = 0;
        for (int base = 0; base < work.columns; base += 32) {
            const int column = base + lane;
            const uint32_t mask = column < work.columns ? work.masks[column] : 0;
            const uint32_t used = __ballot_sync(0xffffffffu, mask != 0);
            const int step = before + __popc(used & ((1u << lane) - 1));
            __syncwarp();  // all have read their masks, which are moved to the front
            if (mask != 0) work.masks[step] = mask, work.order[step] = column;
            before += __popc(used);
        }
        if (lane == 0) count = before;
    }
    __syncthreads();
    return count;
}
// endregion

// region: copy_tiles(work, steps, x)
// One warp for each 64 columns keeps the ring of X full: to start a copy takes longer than the products of its step, so
// that one warp would not do for all.
__device__ __forceinline__ void copy_tiles(const Work& work, int steps, const evo::TensorMap* x) {
    const int nt = (threadIdx.x - CONSUMERS) / 32;
    if (threadIdx.x % 32 != 0) return;
    int slot = 0, round = 0;
    for (int s = 0; s < steps; ++s) {
        const int k = work.order[s] * C;
        if (round > 0) evo::mbarrier_wait(work.empty + slot, (round - 1) & 1);
        evo::mbarrier_arrive_expect_tx(work.full + slot, X_TILE);
        evo::tensor_load(work.ring + slot * STAGE_BYTES + nt * X_TILE, x, work.n0 + nt * 64, k, work.full + slot);
        if (++slot == STAGES) slot = 0, ++round;
    }
}
// endregion

// The blocks of a row lie one after another: its warpgroup gets them in pieces, by a ring and barriers of its own.
struct Blocks {
    int count;
    const in_t* values;
    unsigned char* ring;
    uint64_t *full, *empty;

    __device__ __forceinline__ Blocks(const Work& work, const in_t* w, const int* indptr, int row, int rows) {
        const int i = work.first + row, begin = i < rows ? __ldg(indptr + i) : 0;
        count = i < rows ? __ldg(indptr + i + 1) - begin : 0;
        values = w + int64_t(begin) * (R * C);
        ring = work.ring + W_RING + row * W_STAGES * PIECE_BYTES;
        full = work.w_full + row * W_STAGES, empty = work.w_empty + row * W_STAGES;
    }
    // One thread starts the copy of a piece.
    __device__ __forceinline__ void copy(int piece) const {
        const int bytes = min(WB, count - piece * WB) * BLOCK_BYTES, slot = piece % W_STAGES;
        evo::mbarrier_arrive_expect_tx(full + slot, bytes);
        evo::bulk_load(ring + slot * PIECE_BYTES, values + int64_t(piece) * (WB * R * C), bytes, full + slot);
    }
};

// region: multiply(acc, x, w)
// Transposed, so that a block's rows are the N of wgmma: D (64 columns of Y x R rows) += X' (64 x C) * W' (C x R).
// `x`, `w`: descriptors of the stage's tiles of X and of the row's block of W.
__device__ __forceinline__ void multiply(float (&acc)[NT][R / 2], uint64_t x, uint64_t w) {
    evo::wgmma_fence();
#pragma unroll
    for (int k = 0; k < C / 16; ++k)
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
            evo::wgmma<BFLOAT16, false, true>(acc[nt], x + (nt * X_TILE + k * 2048) / 16, w + k * 16);
    evo::wgmma_commit();
    evo::wgmma_wait<0>();
}
// endregion

// A warpgroup's block row: each step is waited for and given back, those with a block of the row are multiplied.
__device__ __forceinline__ void multiply_row(float (&acc)[NT][R / 2], const Work& work, const Blocks& blocks, int steps,
                                             int row) {
    const int lane = threadIdx.x % 32;
    const bool copies = threadIdx.x % 128 == 0;
    const uint64_t x = evo::wgmma_descriptor_128b(work.ring), w = evo::wgmma_descriptor_core(blocks.ring, C * 16);
    if (copies)
        for (int piece = 0; piece < W_STAGES && piece * WB < blocks.count; ++piece) blocks.copy(piece);
    int slot = 0, block = 0, piece = 0, w_slot = 0;
    uint32_t parity = 0, w_parity = 0;
    for (int s = 0; s < steps; ++s) {
        const bool mine = work.masks[s] >> row & 1;
        if (mine && block == 0) evo::mbarrier_wait(blocks.full + w_slot, w_parity);
        evo::mbarrier_wait(work.full + slot, parity);
        if (mine) multiply(acc, x + slot * (STAGE_BYTES / 16), w + (w_slot * WB + block) * (BLOCK_BYTES / 16));
        if (lane == 0) evo::mbarrier_arrive(work.empty + slot);
        if (++slot == STAGES) slot = 0, parity ^= 1;
        if (mine && ++block == WB) {  // the piece is done: its place is for the one W_STAGES further on
            if (lane == 0) evo::mbarrier_arrive(blocks.empty + w_slot);
            if (copies && (piece + W_STAGES) * WB < blocks.count) {
                evo::mbarrier_wait(blocks.empty + w_slot, w_parity);
                blocks.copy(piece + W_STAGES);
            }
            block = 0, ++piece;
            if (++w_slot == W_STAGES) w_slot = 0, w_parity ^= 1;
        }
    }
}

__device__ __forceinline__ uint32_t packed(float first, float second) {
    evo::Vector<out_t, 2> pair;
    pair.items[0] = evo::from_float<out_t>(first), pair.items[1] = evo::from_float<out_t>(second);
    return reinterpret_cast<const uint32_t&>(pair.word);
}

// region: store_row(acc, work, row, y, epilogue, M, N, ldy)
// The epilogue; then stmatrix turns columns back into rows of Y in shared memory, which are stored 16 bytes at a time.
__device__ __forceinline__ void store_row(const float (&acc)[NT][R / 2], const Work& work, int row, out_t* y,
                                          const evo::Epilogue& epilogue, int M, int N, int64_t ldy) {
    constexpr int CHUNKS = BN / 8;
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int m0 = (work.first + row) * R;
    uint4* tile = reinterpret_cast<uint4*>(work.ring) + row * R * CHUNKS;
    evo::named_barrier(1, CONSUMERS);  // nobody reads the ring any more
#pragma unroll
    for (int nt = 0; nt < NT; ++nt)
#pragma unroll
        for (int j = 0; j < R / 8; ++j) {
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int m = m0 + j * 8 + lane % 4 * 2 + i % 2;
                const int n = work.n0 + nt * 64 + warp * 16 + i / 2 * 8 + lane / 4;
                const int64_t at = evo::y_index(m, n, ldy);
                v[i] = acc[nt][j * 4 + i];
                if constexpr (EVO_HAS_EPILOGUE || sizeof(out_t) != 2) {
                    if (m < M && n < N) {
                        const out_t item = epilogue(v[i], m, at);
                        v[i] = evo::to_float(item);
                        if constexpr (sizeof(out_t) != 2) y[at] = item;
                    }
                }
            }
            if constexpr (sizeof(out_t) == 2) {
                const int m = j * 8 + lane % 8, chunk = (nt * 8 + warp * 2 + lane / 8 % 2) ^ (m & 7);
                evo::stmatrix_x2_trans(tile + m * CHUNKS + chunk, packed(v[0], v[1]), packed(v[2], v[3]));
            }
        }
    if constexpr (sizeof(out_t) == 2) {
        evo::named_barrier(2 + row, 128);
        for (int i = thread; i < R * CHUNKS; i += 128) {
            const int m = i / CHUNKS, chunk = i % CHUNKS, n = work.n0 + chunk * 8;
            if (m0 + m >= M || n >= N) continue;
            const uint4 v = tile[m * CHUNKS + (chunk ^ (m & 7))];
            out_t* target = y + evo::y_index(m0 + m, n, ldy);
            if (n + 8 <= N && ldy % 8 == 0) {
                *reinterpret_cast<uint4*>(target) = v;
            } else {
                const out_t* items = reinterpret_cast<const out_t*>(&v);
#pragma unroll
                for (int k = 0; k < 8; ++k)
                    if (n + k < N) target[k] = items[k];
            }
        }
    }
}
// endregion

extern "C" __global__ void __launch_bounds__(THREADS, 1)
spmm(const __grid_constant__ evo::TensorMap x_map, const in_t* values, const int* indices, const int* indptr, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M, int N, int K, int64_t ldy) {
    extern __shared__ __align__(1024) unsigned char shared[];
    __shared__ uint32_t steps_of_columns[2 * COLUMNS];
    const Work work(shared, steps_of_columns, M, K);
    const int rows = evo::cdiv(M, R);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            evo::mbarrier_init(work.full + i, NT);
            evo::mbarrier_init(work.empty + i, CONSUMERS / 32);
        }
        for (int i = 0; i < ROWS * W_STAGES; ++i) {
            evo::mbarrier_init(work.w_full + i, 1);
            evo::mbarrier_init(work.w_empty + i, 4);
        }
        evo::fence_mbarrier_init();
    }
    const int steps = plan(work, indices, indptr, rows);
    if (threadIdx.x >= CONSUMERS) {
        copy_tiles(work, steps, &x_map);
    } else {
        const int row = threadIdx.x / 128;
        const Blocks blocks(work, values, indptr, row, rows);
        float acc[NT][R / 2] = {};
        multiply_row(acc, work, blocks, steps, row);
        store_row(acc, work, row, y, evo::Epilogue{bias, residual, scale}, M, N, ldy);
    }
}

// For rows of X that the copy engine cannot take: ACROSS columns of Y, 128 apart, and R rows to a thread.
constexpr int ACROSS = 128 / R < 4 ? 128 / R : 4;

extern "C" __global__ void __launch_bounds__(128)
spmm_unaligned(const in_t* values, const int* indices, const int* indptr, const in_t* x, out_t* y, const in_t* bias,
               const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    const evo::Epilogue epilogue{bias, residual, scale};
    const int rows = evo::cdiv(M, R), row = blockIdx.x % rows, n = blockIdx.x / rows * (128 * ACROSS) + threadIdx.x;
    float acc[ACROSS][R] = {};
    const int end = __ldg(indptr + row + 1);
    for (int block = __ldg(indptr + row); block < end; ++block) {
        const int k0 = __ldg(indices + block) * C;
#pragma unroll 1
        for (int k = 0; k < C && k0 + k < K; k += 8) {
            const in_t* matrices = values + int64_t(block) * (R * C) + k * 8;
            float v[ACROSS][8];
#pragma unroll
            for (int c = 0; c < ACROSS; ++c)
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const bool inside = n + c * 128 < N && k0 + k + i < K;
                    v[c][i] = inside ? evo::to_float(__ldg(x + evo::x_index(k0 + k + i, n + c * 128, ldx))) : 0.0f;
                }
#pragma unroll
            for (int r = 0; r < R; ++r) {
                float w[8];
                evo::load_floats(w, matrices + r / 8 * (C * 8) + r % 8 * 8);
#pragma unroll
                for (int c = 0; c < ACROSS; ++c)
#pragma unroll
                    for (int i = 0; i < 8; ++i) acc[c][r] = fmaf(w[i], v[c][i], acc[c][r]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < ACROSS; ++c)
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int m = row * R + r;
            if (m >= M || n + c * 128 >= N) continue;
            const int64_t at = evo::y_index(m, n + c * 128, ldy);
            y[at] = epilogue(acc[c][r], m, at);
        }
}
