/*---
about       = "2:4 SpMM on Hopper: the copy engine feeds rings of tiles, sparse wgmma for wide X, mma.sp for narrow X"
format      = { name = "nm24", values = "fragment" }
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
archs       = ["sm_90a"]
require     = ["K % 64 == 0", "ldx % 8 == 0"]
constraints = [
    "BN % (8 * SPLITK) == 0",
    "BN * WG <= 512",
    "STAGES * (128 * BN * KB + round_up(4608 * WG * KB, 1024)) <= 226 * 1024",
    "64 * WG * BN * (4 * (SPLITK - 1) + 2) // SPLITK <= 226 * 1024",
    "S_MT * S_KB <= 16 and S_MT * S_BN <= 256",
    "S_STAGES * (128 * S_BN * S_KB + round_up(1152 * S_MT * S_KB, 1024)) <= 226 * 1024",
    "64 * (S_KB - 1) * S_MT * S_BN <= 226 * 1024",
]

[[tensormap]]  # X: 64 values of k of BN columns
name        = "x_map"
tensor      = "X"
dims        = ["K", "N"]
strides     = ["2 * ldx"]
box         = ["64", "BN"]
swizzle     = "128B"
l2promotion = "256B"

[[tensormap]]  # W: a row for each m16 tile, 1 KiB for each of its k64 blocks
name        = "w_map"
tensor      = "W.values"
dtype       = "int64"
dims        = ["2 * K", "cdiv(M, 16)"]
strides     = ["16 * K"]
box         = ["128 * KB", "4 * WG"]
l2promotion = "256B"

[[tensormap]]  # its metadata likewise, 128 bytes for each k64 block
name        = "meta_map"
tensor      = "W.meta"
dtype       = "uint32"
dims        = ["K // 2", "cdiv(M, 16)"]
strides     = ["2 * K"]
box         = ["32 * KB", "4 * WG"]
l2promotion = "256B"

[[tensormap]]
name        = "x_map_small"
tensor      = "X"
dims        = ["K", "N"]
strides     = ["2 * ldx"]
box         = ["64", "S_BN"]
swizzle     = "128B"
l2promotion = "256B"

[[tensormap]]
name        = "w_map_small"
tensor      = "W.values"
dtype       = "int64"
dims        = ["2 * K", "cdiv(M, 16)"]
strides     = ["16 * K"]
box         = ["128 * min(S_KB, 2)", "S_MT"]
l2promotion = "256B"

[[tensormap]]
name        = "meta_map_small"
tensor      = "W.meta"
dtype       = "uint32"
dims        = ["K // 2", "cdiv(M, 16)"]
strides     = ["2 * K"]
box         = ["32 * min(S_KB, 2)", "S_MT"]
l2promotion = "256B"

[[launch]]
kernel  = "spmm"
when    = "N > SMALL_N"
grid    = ["cdiv(M, 64 * WG) * cdiv(N, BN) * SPLITK"]
block   = ["128 * WG + 128"]
cluster = ["SPLITK"]
shared  = """max(STAGES * (128 * BN * KB + round_up(4608 * WG * KB, 1024)),
                64 * WG * BN * (4 * (SPLITK - 1) + 2) // SPLITK) + 16 * STAGES"""
args    = ["x_map", "w_map", "meta_map", "Y", "M", "N", "K", "ldy"]

[[launch]]
kernel  = "spmm_small"
when    = "N <= SMALL_N"
grid    = ["cdiv(M, 16 * S_MT) * cdiv(N, S_BN)"]
block   = ["32 * S_MT * S_KB + 32"]
shared  = """max(S_STAGES * (128 * S_BN * S_KB + round_up(1152 * S_MT * S_KB, 1024)),
                64 * (S_KB - 1) * S_MT * S_BN) + 16 * S_STAGES"""
args    = ["x_map_small", "w_map_small", "meta_map_small", "Y", "M", "N", "K", "ldy"]

[params]
SMALL_N  = { values = [0, 8, 16, 32, 64, 128],        default = 16 }  # up to this N the narrow shape (S_) serves
WG       = { values = [1, 2, 3, 4],                   default = 1 }   # consumer warpgroups: 64 rows of W each
BN       = { values = [8, 16, 32, 64, 128, 256],      default = 64 }
KB       = { values = [1, 2],                         default = 1 }   # k64 blocks of a stage
STAGES   = { values = [2, 3, 4, 5, 6, 7, 8, 10, 12],  default = 3 }
SPLITK   = { values = [1, 2, 4, 8],                   default = 1 }   # blocks of a cluster, each a part of K
GROUP    = { values = [1, 2, 4, 8, 16, 32],           default = 8 }   # row tiles walked before the next column tile
S_MT     = { values = [1, 2, 4, 8],                   default = 2 }   # m16 tiles of a block
S_BN     = { values = [8, 16, 32, 64],                default = 8 }
S_KB     = { values = [1, 2, 4, 8],                   default = 2 }   # k64 blocks of a stage, a warp each and tile
S_STAGES = { values = [2, 3, 4, 5, 6, 8, 10, 12, 16], default = 3 }
---*/
#include "evo.cuh"
#include "wgmma.cuh"

// Bytes of a stage: X, then W, then its metadata; copies of X with a swizzle need an alignment of 1024.
template <int Rows, int Bn, int Kb, int Stages>
struct Ring {
    static constexpr int bn = Bn, kb = Kb, stages = Stages;
    static constexpr int x_bytes = bn * 128 * kb, w_bytes = Rows * 64 * kb, meta_bytes = Rows * 8 * kb;
    static constexpr int stage_bytes = x_bytes + (w_bytes + meta_bytes + 1023) / 1024 * 1024;
};

template <int Wg, int Bn, int Kb, int Stages, int Splits>
struct Wide : Ring<64 * Wg, Bn, Kb, Stages> {
    static constexpr int splits = Splits, bm = 64 * Wg, consumers = 128 * Wg, threads = consumers + 128;
    static constexpr int slice = Bn / 2 / splits;              // sums of a thread that its block finishes
    static constexpr int exchange_bytes = (splits - 1) * slice * 4 * consumers, tile_bytes = Bn / splits * bm * 2;
    static constexpr int ring_bytes = evo::larger(Stages * Wide::stage_bytes, exchange_bytes + tile_bytes);
    static constexpr int w_box = Kb;                           // k64 blocks that one copy of W brings
    // Registers of a consumer thread, taken from the producers; 0: all have enough.
    static constexpr int registers = Wg == 2 ? 240 : Wg == 3 ? 160 : 0;
};

template <int Mt, int Bn, int Kb, int Stages>
struct Narrow : Ring<16 * Mt, Bn, Kb, Stages> {
    static constexpr int splits = 1, bm = 16 * Mt, mt = Mt, consumers = 32 * Mt * Kb, threads = consumers + 32;
    static constexpr int ring_bytes = evo::larger(Stages * Narrow::stage_bytes, (Kb - 1) * Mt * Bn * 64);
    static constexpr int w_box = Kb < 2 ? Kb : 2;
};
using Large = Wide<WG, BN, KB, STAGES, SPLITK>;
using Small = Narrow<S_MT, S_BN, S_KB, S_STAGES>;

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

// What a block works on: a tile of Y and, in a cluster, a part of K, in stages of KB k64 blocks.
template <class S>
struct Work {
    int m0, n0, split, first, stages;
    uint64_t *full, *empty;
    unsigned char* ring;

    __device__ __forceinline__ Work(unsigned char* shared, int M, int N, int K) {
        int tile_m, tile_n;
        split = blockIdx.x % S::splits;
        tile_of_block(blockIdx.x / S::splits, evo::cdiv(M, S::bm), evo::cdiv(N, S::bn), tile_m, tile_n);
        m0 = tile_m * S::bm, n0 = tile_n * S::bn;
        const int all = evo::cdiv(K / 64, S::kb), share = evo::cdiv(all, S::splits);
        first = min(split * share, all), stages = min(first + share, all) - first;
        ring = shared;
        full = reinterpret_cast<uint64_t*>(shared + S::ring_bytes), empty = full + S::stages;
    }
    __device__ __forceinline__ unsigned char* stage(int s) const { return ring + s % S::stages * S::stage_bytes; }
};

// region: load_stage(work, s, x, w, meta)
// One thread starts the copies of stage s; what lies outside the operands becomes zero.
template <class S>
__device__ __forceinline__ void load_stage(const Work<S>& work, int s, const evo::TensorMap* x,
                                           const evo::TensorMap* w, const evo::TensorMap* meta) {
    constexpr int BOX = S::w_box;
    uint64_t* full = work.full + s % S::stages;
    unsigned char* stage = work.stage(s);
    const int block = (work.first + s) * S::kb;
    evo::mbarrier_arrive_expect_tx(full, S::x_bytes + S::w_bytes + S::meta_bytes);
#pragma unroll
    for (int i = 0; i < S::kb; i += BOX) {
        unsigned char* values = stage + S::x_bytes;
        evo::tensor_load(values + i * S::bm * 64, w, (block + i) * 128, work.m0 / 16, full);
        evo::tensor_load(values + S::w_bytes + i * S::bm * 8, meta, (block + i) * 32, work.m0 / 16, full);
    }
#pragma unroll
    for (int i = 0; i < S::kb; ++i)
        evo::tensor_load(stage + i * S::bn * 128, x, (block + i) * 64, work.n0, full);
}
// endregion

// Initialises the barriers, starts the first copies, then keeps the ring full: one thread of the block.
template <class S>
__device__ __forceinline__ void start_copies(const Work<S>& work, const evo::TensorMap* x, const evo::TensorMap* w,
                                             const evo::TensorMap* meta) {
    for (int i = 0; i < S::stages; ++i) {
        evo::mbarrier_init(work.full + i, 1);
        evo::mbarrier_init(work.empty + i, S::consumers / 32);
    }
    evo::fence_mbarrier_init();
    for (int s = 0; s < S::stages && s < work.stages; ++s) load_stage(work, s, x, w, meta);
}

template <class S>
__device__ __forceinline__ void continue_copies(const Work<S>& work, const evo::TensorMap* x, const evo::TensorMap* w,
                                                const evo::TensorMap* meta) {
    for (int s = S::stages; s < work.stages; ++s) {
        evo::mbarrier_wait(work.empty + s % S::stages, (s / S::stages - 1) & 1);
        load_stage(work, s, x, w, meta);
    }
}

// Metadata of a block that is not there, whose values are zero: any ascending places.
constexpr uint32_t NO_VALUES = 0x44444444;

// All stages of a block: sums of this thread, 16 rows of W by bn columns of X to a warp.
template <class S>
__device__ __forceinline__ void multiply(float (&acc)[S::bn / 2], const Work<S>& work, int M, int K) {
    constexpr int UNROLL = 4 / S::kb;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool inside = work.m0 / 16 + warp < evo::cdiv(M, 16);
    for (int s0 = 0; s0 < work.stages; s0 += UNROLL) {
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            const int s = s0 + i;
            if (s >= work.stages) break;
            evo::mbarrier_wait(work.full + s % S::stages, s / S::stages & 1);
            const unsigned char* stage = work.stage(s);
            const uint4* w = reinterpret_cast<const uint4*>(stage + S::x_bytes) + warp * S::kb * 64 + lane;
            const uint32_t* meta = reinterpret_cast<const uint32_t*>(stage + S::x_bytes + S::w_bytes);
            uint32_t a[S::kb * 2][4], e[S::kb];
#pragma unroll
            for (int k = 0; k < S::kb; ++k) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const uint4 v = w[(k * 2 + half) * 32];
                    a[k * 2 + half][0] = v.x, a[k * 2 + half][1] = v.y;
                    a[k * 2 + half][2] = v.z, a[k * 2 + half][3] = v.w;
                }
                const bool there = inside && (S::kb == 1 || (work.first + s) * S::kb + k < K / 64);
                e[k] = there ? meta[(warp * S::kb + k) * 32 + lane] : NO_VALUES;
            }
            evo::wgmma_fence();
#pragma unroll
            for (int k = 0; k < S::kb; ++k) {
                const uint64_t x = evo::wgmma_descriptor_128b(stage + k * S::bn * 128);
                evo::wgmma_sp<0>(acc, a[k * 2], x, e[k]);
                evo::wgmma_sp<1>(acc, a[k * 2 + 1], x + 4, e[k]);
            }
            evo::wgmma_commit();
            evo::wgmma_wait<1>();
            if (s > 0 && lane == 0) evo::mbarrier_arrive(work.empty + (s - 1) % S::stages);
        }
    }
    evo::wgmma_wait<0>();
}

// Split-K inside a cluster: every block sends each other block its share of the sums through distributed shared memory
// and adds up what it receives for its own columns, in the order of the splits.
template <class S>
__device__ __forceinline__ void combine_splits(float (&sums)[S::slice], const float (&acc)[S::bn / 2],
                                               const Work<S>& work) {
    if constexpr (S::splits == 1) {
#pragma unroll
        for (int i = 0; i < S::slice; ++i) sums[i] = acc[i];
    } else {
        evo::cluster_arrive();
        evo::cluster_wait();  // nobody reads the ring any more
#pragma unroll
        for (int to = 0; to < S::splits; ++to) {
            if (to == work.split) continue;
            const int place = work.split - (work.split > to);
            const uint32_t target =
                evo::cluster_address(work.ring + (place * (S::slice / 4) * S::consumers + threadIdx.x) * 16, to);
#pragma unroll
            for (int i = 0; i < S::slice; i += 4) {
                const float* v = acc + to * S::slice + i;
                evo::cluster_store(target + i / 4 * S::consumers * 16, v[0], v[1], v[2], v[3]);
            }
        }
        evo::cluster_arrive();
        evo::cluster_wait();
        const float4* received = reinterpret_cast<const float4*>(work.ring) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < S::slice; ++i) sums[i] = 0.0f;
#pragma unroll
        for (int from = 0; from < S::splits; ++from) {
#pragma unroll
            for (int i = 0; i < S::slice; i += 4) {
                if (from == work.split) {
#pragma unroll
                    for (int to = 0; to < S::splits; ++to)
                        if (to == work.split)
#pragma unroll
                            for (int j = 0; j < 4; ++j) sums[i + j] += acc[to * S::slice + i + j];
                } else {
                    const int place = from - (from > work.split);
                    const float4 v = received[(place * (S::slice / 4) + i / 4) * S::consumers];
                    sums[i] += v.x, sums[i + 1] += v.y, sums[i + 2] += v.z, sums[i + 3] += v.w;
                }
            }
        }
    }
}

// Rounds the finished columns to fp16 and stores them through shared memory, 16 bytes of a column at a time.
template <class S>
__device__ __forceinline__ void store_columns(const float (&sums)[S::slice], const Work<S>& work, __half* y, int M,
                                              int N, int64_t ldy) {
    constexpr int CHUNKS = S::bm / 8, COLUMNS = S::bn / S::splits;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint4* tile = reinterpret_cast<uint4*>(work.ring + S::exchange_bytes);
    if constexpr (S::splits == 1) evo::named_barrier(1, S::consumers);  // nobody reads the ring any more
#pragma unroll
    for (int i = 0; i < S::slice; i += 4) {
        const __half2 low = __floats2half2_rn(sums[i], sums[i + 1]), high = __floats2half2_rn(sums[i + 2], sums[i + 3]);
        const int column = i * 2 + lane % 8, chunk = (warp * 2 + lane / 8 % 2) ^ (column & 7);
        evo::stmatrix_x2_trans(tile + column * CHUNKS + chunk, reinterpret_cast<const uint32_t&>(low),
                               reinterpret_cast<const uint32_t&>(high));
    }
    evo::named_barrier(1, S::consumers);
    for (int i = threadIdx.x; i < COLUMNS * CHUNKS; i += S::consumers) {
        const int column = i / CHUNKS, chunk = i % CHUNKS;
        const int n = work.n0 + work.split * COLUMNS + column, m = work.m0 + chunk * 8;
        const uint4 v = tile[column * CHUNKS + (chunk ^ (column & 7))];
        if (n >= N) break;
        if (m + 8 <= M && ldy % 8 == 0) {
            *reinterpret_cast<uint4*>(y + n * ldy + m) = v;
        } else {
            const __half* h = reinterpret_cast<const __half*>(&v);
#pragma unroll
            for (int j = 0; j < 8; ++j)
                if (m + j < M) y[n * ldy + m + j] = h[j];
        }
    }
}

template <class S>
__device__ __forceinline__ void spmm_wide(const evo::TensorMap* x, const evo::TensorMap* w, const evo::TensorMap* meta,
                                          __half* y, int M, int N, int K, int64_t ldy) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Work<S> work(shared, M, N, K);
    const bool producer = threadIdx.x == S::consumers;
    if (producer) start_copies(work, x, w, meta);
    __syncthreads();
    if (threadIdx.x >= S::consumers) {
        if constexpr (S::registers != 0) evo::register_decrease<24>();
        if (producer) continue_copies(work, x, w, meta);
    } else {
        if constexpr (S::registers != 0) evo::register_increase<S::registers>();
        float acc[S::bn / 2] = {}, sums[S::slice];
        multiply(acc, work, M, K);
        combine_splits<S>(sums, acc, work);
        store_columns<S>(sums, work, y, M, N, ldy);
    }
}

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

// A warp's k64 block of every stage: `tile` of the block's m16 tiles, `part` of the stage's k64 blocks.
template <class S>
__device__ __forceinline__ void multiply_narrow(float (&acc)[1][S::bn / 8][4], const Work<S>& work, int tile, int part,
                                                int M, int K) {
    const int lane = threadIdx.x % 32;
    const bool inside = work.m0 / 16 + tile < evo::cdiv(M, 16);
    const int place = part / S::w_box * S::mt * S::w_box + tile * S::w_box + part % S::w_box;
    for (int s = 0; s < work.stages; ++s) {
        evo::mbarrier_wait(work.full + s % S::stages, s / S::stages & 1);
        const unsigned char* stage = work.stage(s);
        const uint4* w = reinterpret_cast<const uint4*>(stage + S::x_bytes) + place * 64 + lane;
        const uint32_t* meta = reinterpret_cast<const uint32_t*>(stage + S::x_bytes + S::w_bytes) + place * 32 + lane;
        const bool there = inside && (work.first + s) * S::kb + part < K / 64;
        const uint4 low = w[0], high = w[32];
        const uint32_t a0[4] = {low.x, low.y, low.z, low.w}, a1[4] = {high.x, high.y, high.z, high.w};
        const uint32_t e = there ? *meta : NO_VALUES;
#pragma unroll
        for (int nt = 0; nt < S::bn / 8; ++nt) {
            const unsigned char* row = stage + (part * S::bn + nt * 8 + lane % 8) * 128;
            uint32_t b0[4], b1[4];  // chunks of a row are swizzled by its place among eight
            evo::ldmatrix_x4(b0, row + (lane / 8 ^ lane % 8) * 16);
            evo::ldmatrix_x4(b1, row + (lane / 8 + 4 ^ lane % 8) * 16);
            evo::mma_sp_m16n8k32<0>(acc[0][nt], a0, b0, e);
            evo::mma_sp_m16n8k32<1>(acc[0][nt], a1, b1, e);
        }
        __syncwarp();
        if (lane == 0) evo::mbarrier_arrive(work.empty + s % S::stages);
    }
}

// Adds up the sums of the warps that share a tile; afterwards those with part 0 hold them.
template <class S>
__device__ __forceinline__ void combine_warps(float (&acc)[1][S::bn / 8][4], float* buffer, int tile, int part) {
    if constexpr (S::kb > 1) {
        constexpr int COUNT = S::bn / 2;
        const int lane = threadIdx.x % 32;
        evo::named_barrier(1, S::consumers);  // nobody reads the ring any more
        if (part > 0) {
            float* mine = buffer + ((part - 1) * S::mt + tile) * COUNT * 32 + lane;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) mine[i * 32] = acc[0][i / 4][i % 4];
        }
        evo::named_barrier(1, S::consumers);
        if (part == 0)
            for (int p = 0; p < S::kb - 1; ++p) {
                const float* other = buffer + (p * S::mt + tile) * COUNT * 32 + lane;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) acc[0][i / 4][i % 4] += other[i * 32];
            }
    }
}

template <class S>
__device__ __forceinline__ void spmm_narrow(const evo::TensorMap* x, const evo::TensorMap* w,
                                            const evo::TensorMap* meta, __half* y, int M, int N, int K, int64_t ldy) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Work<S> work(shared, M, N, K);
    const bool producer = threadIdx.x == S::consumers;
    if (producer) start_copies(work, x, w, meta);
    __syncthreads();
    if (threadIdx.x >= S::consumers) {
        if (producer) continue_copies(work, x, w, meta);
    } else {
        const int tile = threadIdx.x / 32 % S::mt, part = threadIdx.x / 32 / S::mt;
        float acc[1][S::bn / 8][4] = {};
        multiply_narrow(acc, work, tile, part, M, K);
        combine_warps<S>(acc, reinterpret_cast<float*>(shared), tile, part);
        if (part == 0) store_tile(acc, y, work.m0 + tile * 16, work.n0, M, N, ldy);
    }
}

extern "C" __global__ void __launch_bounds__(Large::threads, 1)
spmm(const __grid_constant__ evo::TensorMap x_map, const __grid_constant__ evo::TensorMap w_map,
     const __grid_constant__ evo::TensorMap meta_map, __half* y, int M, int N, int K, int64_t ldy) {
    spmm_wide<Large>(&x_map, &w_map, &meta_map, y, M, N, K, ldy);
}

extern "C" __global__ void __launch_bounds__(Small::threads)
spmm_small(const __grid_constant__ evo::TensorMap x_map, const __grid_constant__ evo::TensorMap w_map,
           const __grid_constant__ evo::TensorMap meta_map, __half* y, int M, int N, int K, int64_t ldy) {
    spmm_narrow<Small>(&x_map, &w_map, &meta_map, y, M, N, K, ldy);
}
