/*---
about       = "Block-sparse SpMM on Hopper: a warpgroup to a block row, tiles of X multicast to the blocks of a cluster"
format      = { name = "bsr", r = "R", c = "C", order = "core" }
dtypes      = ["float16", "bfloat16"]
layouts     = ["row"]
archs       = ["sm_90a"]
require     = ["K <= 32768"]
constraints = [
    "NT * R <= 256",
    "C >= 8 * CM",
    "STAGES * round_up(128 * C * NT + 2 * R * C * ROWS, 1024) <= 200 * 1024",
]

[[tensormap]]  # of a C x 64 tile of X the rows that one block of the cluster brings
name        = "x_map"
tensor      = "X"
dims        = ["N", "K"]
strides     = ["2 * ldx"]
box         = ["64", "C // CM"]
swizzle     = "128B"
l2promotion = "256B"

[[launch]]
kernel  = "spmm"
when    = "ldx % 8 == 0"
grid    = ["CM * cdiv(M, CM * ROWS * R) * cdiv(N, 64 * NT)"]
block   = ["128 * ROWS + 32"]
cluster = ["CM"]
shared  = """max(STAGES * round_up(128 * C * NT + 2 * R * C * ROWS, 1024), 128 * NT * ROWS * R) + 16 * STAGES
             + 8 * cdiv(K, C)"""
args    = ["x_map", "W.values", "W.indices", "W.indptr", "Y", "bias", "residual", "scale", "M", "N", "K", "ldy"]

[[launch]]
kernel = "spmm_unaligned"
when   = "ldx % 8 != 0"
grid   = ["cdiv(M, R) * cdiv(N, 128)"]
block  = ["128"]
args   = ["W.values", "W.indices", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
R      = { values = [16, 32, 64],                    default = 32 }  # the format's block
C      = { values = [16, 32, 64],                    default = 32 }
ROWS   = { values = [1, 2, 3, 4],                    default = 4 }   # block rows of a block, a warpgroup each
NT     = { values = [1, 2, 4, 8],                    default = 2 }   # 64 columns each
CM     = { values = [1, 2, 4, 8],                    default = 2 }   # blocks of a cluster, one below the other
STAGES = { values = [2, 3, 4, 5, 6, 7, 8, 10, 12],   default = 6 }
---*/
#include "task.cuh"
#include "wgmma.cuh"

using evo::in_t;
using evo::out_t;

constexpr int BN = 64 * NT, CONSUMERS = 128 * ROWS, THREADS = CONSUMERS + 32;
constexpr int X_TILE = C * 128, X_BYTES = X_TILE * NT, W_BYTES = R * C * 2;  // of a stage: NT tiles of X, ROWS of W
constexpr int STAGE_BYTES = (X_BYTES + W_BYTES * ROWS + 1023) / 1024 * 1024;
constexpr int RING_BYTES = evo::larger(STAGES * STAGE_BYTES, ROWS * R * BN * 2);  // later it holds the tile of Y
constexpr uint32_t EVERY_BLOCK = (1u << CM) - 1;
constexpr bool BFLOAT16 = EVO_IN == EVO_BFLOAT16;

// What a block works on. A step is a block column of W that some block row of the cluster has; all blocks of a cluster
// take the same steps.
struct Work {
    int rank, first, n0, columns;  // place in the cluster; its first block row; first column of Y; block columns of W
    unsigned char* ring;
    uint64_t *full, *empty;
    uint32_t* masks;   // of each step: bit i stands for the cluster's block row i
    int* order;        // its block column

    __device__ __forceinline__ Work(unsigned char* shared, int M, int K) {
        const int clusters_m = evo::cdiv(M, CM * ROWS * R), cluster = blockIdx.x / CM;
        rank = blockIdx.x % CM;
        first = cluster % clusters_m * (CM * ROWS);
        n0 = cluster / clusters_m * BN;
        columns = evo::cdiv(K, C);
        ring = shared;
        full = reinterpret_cast<uint64_t*>(shared + RING_BYTES), empty = full + STAGES;
        masks = reinterpret_cast<uint32_t*>(empty + STAGES);
        order = reinterpret_cast<int*>(masks + columns);
    }
    __device__ __forceinline__ uint32_t own(uint32_t mask) const { return mask >> (rank * ROWS) & ((1u << ROWS) - 1); }
};

// region: plan(work, indices, indptr, rows)
// Which block rows of the cluster have which block column, and the steps in the order of the columns; how many.
__device__ __forceinline__ int plan(const Work& work, const int* indices, const int* indptr, int rows) {
    __shared__ int count;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < work.columns; i += THREADS) work.masks[i] = 0;
    __syncthreads();
    for (int i = warp; i < CM * ROWS && work.first + i < rows; i += THREADS / 32) {
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

__device__ __forceinline__ void everybody_meets() {
    if constexpr (CM > 1) {
        evo::cluster_arrive();
        evo::cluster_wait();
    } else {
        __syncthreads();
    }
}

// region: copy_step(work, slot, column, own, values, x, lane, next)
// A lane for each own block row starts the copy of its block of W, if it has one, and moves on to the next; the first
// lane that of its rows of the tiles of X, for all blocks of the cluster.
__device__ __forceinline__ void copy_step(const Work& work, int slot, int column, uint32_t own, const in_t* values,
                                          const evo::TensorMap* x, int lane, int& next) {
    constexpr int PART = C / CM;
    unsigned char* stage = work.ring + slot * STAGE_BYTES;
    uint64_t* full = work.full + slot;
    if (lane == 0) evo::mbarrier_arrive_expect_tx(full, X_BYTES + __popc(own) * W_BYTES);
    __syncwarp();
    if (lane == 0) {
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
            unsigned char* target = stage + nt * X_TILE + work.rank * PART * 128;
            const int n = work.n0 + nt * 64, k = column * C + work.rank * PART;
            if constexpr (CM > 1)
                evo::tensor_load_multicast(target, x, n, k, full, EVERY_BLOCK);
            else
                evo::tensor_load(target, x, n, k, full);
        }
    }
    if (own >> lane & 1)
        evo::bulk_load(stage + X_BYTES + lane * W_BYTES, values + int64_t(next++) * (R * C), W_BYTES, full);
}
// endregion

// One warp keeps the ring full.
__device__ __forceinline__ void copy_all(const Work& work, int steps, const in_t* values, const int* indptr, int rows,
                                         const evo::TensorMap* x) {
    const int lane = threadIdx.x % 32, row = work.first + work.rank * ROWS + lane;
    int next = lane < ROWS && row < rows ? __ldg(indptr + row) : 0;  // block of W
    int slot = 0, round = 0;
    for (int s = 0; s < steps; ++s) {
        if (round > 0) evo::mbarrier_wait(work.empty + slot, (round - 1) & 1);
        copy_step(work, slot, work.order[s], work.own(work.masks[s]), values, x, lane, next);
        if (++slot == STAGES) slot = 0, ++round;
    }
}

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
__device__ __forceinline__ void multiply_row(float (&acc)[NT][R / 2], const Work& work, int steps, int row) {
    const int lane = threadIdx.x % 32;
    const uint64_t x = evo::wgmma_descriptor_128b(work.ring);
    const uint64_t w = evo::wgmma_descriptor_core(work.ring + X_BYTES + row * W_BYTES, C * 16);
    const uint32_t own = 1u << (work.rank * ROWS + row);
    int slot = 0;
    uint32_t parity = 0;
    for (int s = 0; s < steps; ++s) {
        evo::mbarrier_wait(work.full + slot, parity);
        if (work.masks[s] & own) multiply(acc, x + slot * (STAGE_BYTES / 16), w + slot * (STAGE_BYTES / 16));
        if constexpr (CM > 1) {
            if (lane < CM) evo::mbarrier_arrive_cluster(work.empty + slot, lane);
        } else {
            if (lane == 0) evo::mbarrier_arrive(work.empty + slot);
        }
        if (++slot == STAGES) slot = 0, parity ^= 1;
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
    const int m0 = (work.first + work.rank * ROWS + row) * R;
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
    const Work work(shared, M, K);
    const int rows = evo::cdiv(M, R);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            evo::mbarrier_init(work.full + i, 1);
            evo::mbarrier_init(work.empty + i, CM * CONSUMERS / 32);
        }
        evo::fence_mbarrier_init();
    }
    const int steps = plan(work, indices, indptr, rows);
    everybody_meets();
    if (threadIdx.x >= CONSUMERS) {
        copy_all(work, steps, values, indptr, rows, &x_map);
    } else {
        const int row = threadIdx.x / 128;
        float acc[NT][R / 2] = {};
        multiply_row(acc, work, steps, row);
        store_row(acc, work, row, y, evo::Epilogue{bias, residual, scale}, M, N, ldy);
    }
    if constexpr (CM > 1) everybody_meets();  // no block goes while others still send to it
}

// For rows of X that the copy engine cannot take: one column of Y and R rows to a thread.
extern "C" __global__ void __launch_bounds__(128)
spmm_unaligned(const in_t* values, const int* indices, const int* indptr, const in_t* x, out_t* y, const in_t* bias,
               const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    const evo::Epilogue epilogue{bias, residual, scale};
    const int rows = evo::cdiv(M, R), row = blockIdx.x % rows, n = blockIdx.x / rows * 128 + threadIdx.x;
    if (n >= N) return;
    float acc[R] = {};
    const int end = __ldg(indptr + row + 1);
    for (int block = __ldg(indptr + row); block < end; ++block) {
        const in_t* w = values + int64_t(block) * (R * C);
        const int k0 = __ldg(indices + block) * C;
#pragma unroll 1
        for (int k = 0; k < C && k0 + k < K; ++k) {
            const float v = evo::to_float(__ldg(x + evo::x_index(k0 + k, n, ldx)));
#pragma unroll
            for (int r = 0; r < R; ++r)
                acc[r] = fmaf(evo::to_float(__ldg(w + (r / 8 * (C / 8) + k / 8) * 64 + r % 8 * 8 + k % 8)), v, acc[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int m = row * R + r;
        if (m >= M) break;
        const int64_t at = evo::y_index(m, n, ldy);
        y[at] = epilogue(acc[r], m, at);
    }
}
