/*---
about       = "Fused dense GEMM on Hopper: the copy engine feeds rings of tiles, wgmma or, for narrow X, mma.sync"
format      = "dense"
dtypes      = ["float16", "bfloat16"]
archs       = ["sm_90a"]
constraints = [
    "BN % (8 * SPLITK) == 0 and BN % (8 * CLUSTER_M) == 0",
    "SPLITK * CLUSTER_M <= 8",
    "BN * WG <= 512",
    "128 * STAGES * KB * (64 * WG + max(BN, 64)) <= 226 * 1024",
    "S_WGMMA == 1 or S_MT * S_KB <= 16 and S_SPLITK == 1",
    "S_WGMMA == 0 or S_MT % 4 == 0 and S_BN % (8 * S_SPLITK) == 0",
    "S_MT * S_BN <= 256",
    "128 * S_STAGES * S_KB * (16 * S_MT + 64) <= 226 * 1024",
    "64 * (S_KB - 1) * S_MT * S_BN <= 226 * 1024",
]

[[tensormap]]  # W: 64 values of k of a block's rows
name        = "w_map"
tensor      = "W.values"
box         = ["64", "64 * WG"]
swizzle     = "128B"
l2promotion = "256B"

[[tensormap]]  # X: 64 values of k of some columns, or, where rows are contiguous, 64 columns of some k
name        = "x_map"
tensor      = "X"
box         = ["64", "min(BN // CLUSTER_M, 64)"]
swizzle     = "128B"
l2promotion = "256B"

[[tensormap]]
name        = "w_map_small"
tensor      = "W.values"
box         = ["64", "16 * S_MT"]
swizzle     = "128B"
l2promotion = "256B"

[[tensormap]]
name        = "x_map_small"
tensor      = "X"
box         = ["64", "S_BN"]
swizzle     = "128B"
l2promotion = "256B"

[[launch]]
kernel  = "gemm"
when    = "N > SMALL_N and K % 8 == 0 and ldx % 8 == 0"
grid    = ["cdiv(M, 64 * WG * CLUSTER_M) * cdiv(N, BN) * SPLITK * CLUSTER_M"]
block   = ["128 * WG + 128"]
cluster = ["SPLITK * CLUSTER_M"]
shared  = """max(128 * STAGES * KB * (64 * WG + max(BN, 64 * (ldx == N))),
                256 * WG * BN * (SPLITK > 1) + 128 * WG * BN // SPLITK) + 16 * STAGES"""
args    = ["w_map", "x_map", "Y", "bias", "residual", "scale", "M", "N", "K", "ldy"]

[[launch]]
kernel  = "gemm_small"
when    = "N <= SMALL_N and K % 8 == 0 and ldx % 8 == 0"
grid    = ["cdiv(M, 16 * S_MT) * cdiv(N, S_BN) * S_SPLITK"]
block   = ["32 * S_MT * max(S_KB * (1 - S_WGMMA), 1) + 32 + 96 * S_WGMMA"]
cluster = ["S_SPLITK"]
shared  = """max(128 * S_STAGES * S_KB * (16 * S_MT + max(S_BN, 64 * (ldx == N))),
                64 * (S_KB - 1) * S_MT * S_BN, 80 * S_MT * S_BN) + 16 * S_STAGES"""
args    = ["w_map_small", "x_map_small", "Y", "bias", "residual", "scale", "M", "N", "K", "ldy"]

[[launch]]
kernel  = "gemm_unaligned"
when    = "K % 8 != 0 or ldx % 8 != 0"
grid    = ["cdiv(M, 64) * cdiv(N, 32)"]
block   = ["128"]
shared  = "16384"
args    = ["W.values", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
SMALL_N   = { values = [0, 8, 16, 32, 64, 128],       default = 32 }  # up to this N the narrow shape (S_) serves
WG        = { values = [1, 2, 3, 4],                  default = 2 }   # consumer warpgroups: 64 rows of W each
BN        = { values = [8, 16, 32, 64, 128, 256],     default = 128 }
KB        = { values = [1, 2],                        default = 1 }   # k64 blocks of a stage
STAGES    = { values = [2, 3, 4, 5, 6, 7, 8, 10, 12], default = 6 }
SPLITK    = { values = [1, 2, 4, 8],                  default = 1 }   # blocks of a cluster, each a part of K
CLUSTER_M = { values = [1, 2, 4],                     default = 1 }   # row tiles of a cluster, which share tiles of X
GROUP     = { values = [1, 2, 4, 8, 16, 32],          default = 8 }   # row tiles walked before the next column tile
S_WGMMA   = { values = [0, 1],                        default = 0 }   # for narrow X too; else mma.sync
S_SPLITK  = { values = [1, 2, 4, 8],                  default = 1 }   # with wgmma
S_MT      = { values = [1, 2, 4, 8],                  default = 1 }   # m16 tiles of a block
S_BN      = { values = [8, 16, 32, 64],               default = 16 }
S_KB      = { values = [1, 2, 4, 8],                  default = 4 }   # k64 blocks of a stage; of mma.sync a warp each
S_STAGES  = { values = [2, 3, 4, 5, 6, 8, 10, 12, 16], default = 4 }
---*/
#include "task.cuh"
#include "wgmma.cuh"

using evo::in_t;
using evo::out_t;

constexpr bool BF16 = EVO_IN == EVO_BFLOAT16;

// A stage holds kb blocks of W, then of X: 64 values of k, in swizzled lines of 128 bytes, aligned to 1024. A line is a
// row of W or a column of X; where rows of X are contiguous, it is 64 columns of one k, and 64 lines (a k64 block of 64
// columns) lie together.
template <int Rows, int Bn, int Kb, int Stages>
struct Ring {
    static constexpr int bm = Rows, bn = Bn, kb = Kb, stages = Stages;
    static constexpr int x_lines = evo::X_ROW ? evo::larger(Bn, 64) : Bn;
    static constexpr int w_block = bm * 128, x_block = x_lines * 128, w_bytes = w_block * kb;
    static constexpr int stage_bytes = (w_block + x_block) * kb;
};

template <int Wg, int Bn, int Kb, int Stages, int Splits, int Members>
struct Wide : Ring<64 * Wg, Bn, Kb, Stages> {
    static constexpr bool wgmma = true;
    static constexpr int splits = Splits, members = Members, consumers = 128 * Wg, threads = consumers + 128;
    static constexpr int columns = Bn / splits, slice = columns / 2;  // that a block finishes, and sums of a thread
    static constexpr int exchange_bytes = splits > 1 ? Bn * 64 * Wg * 4 : 0, tile_bytes = columns * 64 * Wg * 2;
    static constexpr int ring_bytes = evo::larger(Stages * Wide::stage_bytes, exchange_bytes + tile_bytes);
    static constexpr int x_box = Bn / members < 64 ? Bn / members : 64;  // lines of X that one copy brings
    // Registers of a consumer thread, taken from the producers; 0: all have enough.
    static constexpr int registers = Bn < 128 || Wg == 1 ? 0 : Wg == 2 ? 240 : Wg == 3 ? 160 : 112;
};

template <int Mt, int Bn, int Kb, int Stages>
struct Narrow : Ring<16 * Mt, Bn, Kb, Stages> {
    static constexpr bool wgmma = false;
    static constexpr int splits = 1, members = 1, mt = Mt, consumers = 32 * Mt * Kb, threads = consumers + 32;
    static constexpr int ring_bytes = evo::larger(Stages * Narrow::stage_bytes, (Kb - 1) * Mt * Bn * 64);
    static constexpr int x_box = Bn;
};
using Large = Wide<WG, BN, KB, STAGES, SPLITK, CLUSTER_M>;
template <bool Wgmma>
struct SmallOf { using type = Narrow<S_MT, S_BN, S_KB, S_STAGES>; };
template <>
struct SmallOf<true> { using type = Wide<S_MT / 4, S_BN, S_KB, S_STAGES, S_SPLITK, 1>; };
using Small = SmallOf<S_WGMMA>::type;
using Unaligned = Narrow<4, 32, 1, 1>;

// Where results go.
struct Output {
    out_t* y;
    evo::Epilogue epilogue;
    int M, N;
    int64_t ldy;

    // Y at (m, n), from its sum; outside Y: a value that nobody needs.
    __device__ __forceinline__ out_t value(float sum, int m, int n) const {
        m = min(m, M - 1), n = min(n, N - 1);
        return epilogue(sum, m, evo::y_index(m, n, ldy));
    }

    // What the epilogue will read of the bias: a consumer each row, while the first tiles are on their way.
    __device__ __forceinline__ void prefetch_bias(int m) const {
        if constexpr (evo::Epilogue::HAS_BIAS)
            if (m < M) evo::prefetch_l2(epilogue.bias + m);
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

// What a block works on: a tile of Y and, in a cluster, a part of K, in stages of KB k64 blocks. A cluster has
// `members` row tiles of the same columns, each in `splits` parts of K; members of a part load X for each other.
template <class S>
struct Work {
    int m0, n0, split, member, first, stages;
    uint64_t *full, *empty;
    unsigned char* ring;

    __device__ __forceinline__ Work(unsigned char* shared, int M, int N, int K) {
        int tile_m, tile_n;
        split = blockIdx.x % S::splits, member = blockIdx.x / S::splits % S::members;
        tile_of_block(blockIdx.x / (S::splits * S::members), evo::cdiv(M, S::bm * S::members), evo::cdiv(N, S::bn),
                      tile_m, tile_n);
        m0 = (tile_m * S::members + member) * S::bm, n0 = tile_n * S::bn;
        const int all = evo::cdiv(K, 64 * S::kb), share = evo::cdiv(all, S::splits);
        first = min(split * share, all), stages = min(first + share, all) - first;
        ring = shared;
        full = reinterpret_cast<uint64_t*>(shared + S::ring_bytes), empty = full + S::stages;
    }
    __device__ __forceinline__ unsigned char* stage(int s) const { return ring + s % S::stages * S::stage_bytes; }
    __device__ __forceinline__ int rank(int split, int member) const { return member * S::splits + split; }
};

// region: load_stage(work, s, w, x)
// One thread starts the copies of stage s; what lies outside the operands becomes zero. Of X a member of a cluster
// brings its share, and all members get it.
template <class S>
__device__ __forceinline__ void load_stage(const Work<S>& work, int s, const evo::TensorMap* w,
                                           const evo::TensorMap* x) {
    constexpr int COPIES = S::x_lines / S::x_box / S::members;
    uint64_t* full = work.full + s % S::stages;
    unsigned char* stage = work.stage(s);
    evo::mbarrier_arrive_expect_tx(full, S::stage_bytes);
#pragma unroll
    for (int block = 0; block < S::kb; ++block) {
        const int k = ((work.first + s) * S::kb + block) * 64;
        evo::tensor_load(stage + block * S::w_block, w, k, work.m0, full);
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            const int line = (work.member * COPIES + i) * S::x_box;
            unsigned char* to = stage + S::w_bytes + block * S::x_block + line * 128;
            const int c0 = evo::X_ROW ? work.n0 + line / 64 * 64 : k, c1 = evo::X_ROW ? k + line % 64 : work.n0 + line;
            if constexpr (S::members == 1) {
                evo::tensor_load(to, x, c0, c1, full);
            } else {
                uint16_t blocks = 0;
#pragma unroll
                for (int member = 0; member < S::members; ++member) blocks |= 1 << work.rank(work.split, member);
                evo::tensor_load_multicast(to, x, c0, c1, full, blocks);
            }
        }
    }
}
// endregion

// Readies the ring and starts the first copies, of each stage by another warp: all threads of the block.
template <class S>
__device__ __forceinline__ void start_ring(const Work<S>& work, const evo::TensorMap* w, const evo::TensorMap* x) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        evo::prefetch_tensormap(w);
        evo::prefetch_tensormap(x);
        for (int i = 0; i < S::stages; ++i) {
            evo::mbarrier_init(work.full + i, 1);
            evo::mbarrier_init(work.empty + i, S::consumers / 32 * S::members);
        }
        evo::fence_mbarrier_init();
    }
    if constexpr (S::members > 1) {  // others copy into this block
        evo::cluster_arrive();
        evo::cluster_wait();
    } else {
        __syncthreads();
    }
    if (lane == 0)
        for (int s = warp; s < S::stages && s < work.stages; s += S::threads / 32) load_stage(work, s, w, x);
}

// Keeps the ring full: the producer.
template <class S>
__device__ __forceinline__ void continue_copies(const Work<S>& work, const evo::TensorMap* w,
                                                const evo::TensorMap* x) {
    for (int s = S::stages; s < work.stages; ++s) {
        evo::mbarrier_wait(work.empty + s % S::stages, (s / S::stages - 1) & 1);
        load_stage(work, s, w, x);
    }
}

// A consumer warp is done with stage s: its block may load the next there, and so may those that load for it.
template <class S>
__device__ __forceinline__ void release(const Work<S>& work, int s) {
    const int lane = threadIdx.x % 32;
    uint64_t* empty = work.empty + s % S::stages;
    if constexpr (S::members == 1) {
        if (lane == 0) evo::mbarrier_arrive(empty);
    } else {
        if (lane < S::members) evo::mbarrier_arrive_cluster(empty, work.rank(work.split, lane));
    }
}

// region: multiply(acc, work)
// All stages of a block: sums of this thread, 64 rows of W by bn columns of X to a warpgroup.
template <class S>
__device__ __forceinline__ void multiply(float (&acc)[S::bn / 2], const Work<S>& work) {
    constexpr int X_STEP = evo::X_ROW ? 16 * 128 / 16 : 2;  // 16 values of k further, in units of a descriptor
    const int group = threadIdx.x / 128;
    for (int s = 0; s < work.stages; ++s) {
        evo::mbarrier_wait(work.full + s % S::stages, s / S::stages & 1);
        const unsigned char* stage = work.stage(s);
        evo::wgmma_fence();
#pragma unroll
        for (int block = 0; block < S::kb; ++block) {
            const uint64_t w = evo::wgmma_descriptor_128b(stage + block * S::w_block + group * 64 * 128);
            const uint64_t x = evo::wgmma_descriptor_128b(stage + S::w_bytes + block * S::x_block, 64 * 128);
#pragma unroll
            for (int step = 0; step < 4; ++step) evo::wgmma<BF16, evo::X_ROW>(acc, w + step * 2, x + step * X_STEP);
        }
        evo::wgmma_commit();
        evo::wgmma_wait<1>();
        if (s > 0) release(work, s - 1);
    }
    evo::wgmma_wait<0>();
}
// endregion

// Consumers: nobody reads the ring any more, nor will anyone announce so to this block or load into it.
template <class S>
__device__ __forceinline__ void finish_ring() {
    if constexpr (S::splits * S::members > 1) {
        evo::cluster_arrive();
        evo::cluster_wait();
    } else {
        evo::named_barrier(1, S::consumers);
    }
}

// Split-K inside a cluster: every block sends each other block of its tile that one's share of the sums through
// distributed shared memory, keeps its own in its own, and adds up what is there, in the order of the splits.
template <class S>
__device__ __forceinline__ void combine_splits(float (&sums)[S::slice], const float (&acc)[S::bn / 2],
                                               const Work<S>& work) {
    if constexpr (S::splits == 1) {
#pragma unroll
        for (int i = 0; i < S::slice; ++i) sums[i] = acc[i];
    } else {
        constexpr int SHARE = S::slice / 4 * S::consumers;
        float4* buffer = reinterpret_cast<float4*>(work.ring) + threadIdx.x;
        float4* mine = buffer + work.split * SHARE;
#pragma unroll
        for (int to = 0; to < S::splits; ++to) {
            const uint32_t target = evo::cluster_address(mine, work.rank(to, work.member));
#pragma unroll
            for (int i = 0; i < S::slice; i += 4) {
                const float* v = acc + to * S::slice + i;
                if (to == work.split)
                    mine[i / 4 * S::consumers] = make_float4(v[0], v[1], v[2], v[3]);
                else
                    evo::cluster_store(target + i / 4 * S::consumers * 16, v[0], v[1], v[2], v[3]);
            }
        }
        evo::cluster_arrive();
        evo::cluster_wait();
#pragma unroll
        for (int i = 0; i < S::slice; ++i) sums[i] = 0.0f;
#pragma unroll
        for (int from = 0; from < S::splits; ++from) {
#pragma unroll
            for (int i = 0; i < S::slice; i += 4) {
                const float4 v = buffer[from * SHARE + i / 4 * S::consumers];
                sums[i] += v.x, sums[i + 1] += v.y, sums[i + 2] += v.z, sums[i + 3] += v.w;
            }
        }
    }
}

// region: store_block(sums, work, y, out)
// Applies the epilogue to the columns that this block finishes and stores them: float32 as the threads hold them, in
// whole sectors; 16-bit types through shared memory, 16 bytes of a contiguous line of Y at a time.
template <class S, typename T>
__device__ __forceinline__ void store_block(const float (&sums)[S::slice], const Work<S>& work, T* y,
                                            const Output& out) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_n = work.n0 + work.split * S::columns;
    const int m = work.m0 + warp * 16 + lane / 4, n = first_n + lane % 4 * 2;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < S::slice; ++i) {
            const int to_m = m + i % 4 / 2 * 8, to_n = n + i / 4 * 8 + i % 2;
            const T value = out.value(sums[i], to_m, to_n);
            if (to_m < out.M && to_n < out.N) y[evo::y_index(to_m, to_n, out.ldy)] = value;
        }
    } else {
        constexpr int LINES = evo::Y_ROW ? S::bm : S::columns, CHUNKS = (evo::Y_ROW ? S::columns : S::bm) / 8;
        const auto place = [](int line, int chunk) {  // eight lines or chunks in turn lie in different banks
            return line * CHUNKS + (chunk ^ (CHUNKS >= 8 ? line & 7 : line * CHUNKS / 8 & (CHUNKS - 1)));
        };
        uint4* tile = reinterpret_cast<uint4*>(work.ring + S::exchange_bytes);
#pragma unroll
        for (int i = 0; i < S::slice; i += 4) {
            evo::Vector<T, 2> pair[2];  // neighbours along n; eight rows further down
#pragma unroll
            for (int j = 0; j < 4; ++j)
                pair[j / 2].items[j % 2] = out.value(sums[i + j], m + j / 2 * 8, n + i * 2 + j % 2);
            const int row = warp * 16 + lane % 16;  // of the tile
            if constexpr (evo::Y_ROW)
                evo::stmatrix_x2(tile + place(row, i / 4), pair[0].word, pair[1].word);
            else
                evo::stmatrix_x2_trans(tile + place(i * 2 + lane % 8, row / 8), pair[0].word, pair[1].word);
        }
        evo::named_barrier(1, S::consumers);
        for (int i = threadIdx.x; i < LINES * CHUNKS; i += S::consumers) {
            const int line = i / CHUNKS, chunk = i % CHUNKS;
            const int to = (evo::Y_ROW ? work.m0 : first_n) + line, at = (evo::Y_ROW ? first_n : work.m0) + chunk * 8;
            const int left = (evo::Y_ROW ? out.N : out.M) - at;
            if (to >= (evo::Y_ROW ? out.M : out.N)) break;
            evo::Vector<T, 8> eight;
            eight.word = tile[place(line, chunk)];
            T* target = y + to * out.ldy + at;
            if (left >= 8 && out.ldy % 8 == 0) {
                evo::store_vector(target, eight);
            } else {
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    if (j < left) target[j] = eight.items[j];
            }
        }
    }
}
// endregion

template <class S>
__device__ __forceinline__ void gemm_wide(const Work<S>& work, const Output& out) {
    if constexpr (S::registers != 0) evo::register_increase<S::registers>();
    float acc[S::bn / 2] = {}, sums[S::slice];
    multiply(acc, work);
    finish_ring<S>();
    combine_splits<S>(sums, acc, work);
    store_block<S>(sums, work, out.y, out);
}

// region: multiply_block(acc, w, x)
// A warp's k64 block: 16 lines of W by bn columns of X.
template <class S>
__device__ __forceinline__ void multiply_block(float (&acc)[S::bn / 8][4], const unsigned char* w,
                                               const unsigned char* x) {
    const int lane = threadIdx.x % 32;
    const auto chunk = [lane](int i) { return (i ^ lane % 8) * 16; };  // swizzled by the line's place among eight
#pragma unroll
    for (int k = 0; k < 64; k += 32) {
        uint32_t a[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) evo::ldmatrix_x4(a[i], w + lane % 16 * 128 + chunk(k / 8 + i * 2 + lane / 16));
#pragma unroll
        for (int nt = 0; nt < S::bn / 8; ++nt) {
            uint32_t b[4];
            if constexpr (evo::X_ROW)
                evo::ldmatrix_x4_trans(b, x + (k + lane) * 128 + chunk(nt));
            else
                evo::ldmatrix_x4(b, x + (nt * 8 + lane % 8) * 128 + chunk(k / 8 + lane / 8));
            evo::mma_in(acc[nt], a[0], b[0], b[1]);
            evo::mma_in(acc[nt], a[1], b[2], b[3]);
        }
    }
}
// endregion

// A warp's part of every stage: `tile` of the block's m16 tiles, `part` of the stage's k64 blocks.
template <class S>
__device__ __forceinline__ void multiply_narrow(float (&acc)[S::bn / 8][4], const Work<S>& work, int tile, int part) {
    for (int s = 0; s < work.stages; ++s) {
        evo::mbarrier_wait(work.full + s % S::stages, s / S::stages & 1);
        const unsigned char* stage = work.stage(s);
        multiply_block<S>(acc, stage + part * S::w_block + tile * 16 * 128, stage + S::w_bytes + part * S::x_block);
        __syncwarp();
        release(work, s);
    }
}

// Adds up the sums of the warps that share a tile; afterwards those with part 0 hold them.
template <class S>
__device__ __forceinline__ void combine_warps(float (&acc)[S::bn / 8][4], float* buffer, int tile, int part) {
    if constexpr (S::kb > 1) {
        constexpr int COUNT = S::bn / 2;
        const int lane = threadIdx.x % 32;
        finish_ring<S>();
        if (part > 0) {
            float* mine = buffer + ((part - 1) * S::mt + tile) * COUNT * 32 + lane;
#pragma unroll
            for (int i = 0; i < COUNT; ++i) mine[i * 32] = acc[i / 4][i % 4];
        }
        evo::named_barrier(1, S::consumers);
        if (part == 0)
            for (int p = 0; p < S::kb - 1; ++p) {
                const float* other = buffer + (p * S::mt + tile) * COUNT * 32 + lane;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) acc[i / 4][i % 4] += other[i * 32];
            }
    }
}

// region: store_pair(first, second, y, out, m0, n0)
// Applies the epilogue to a pair of neighbours in a row of Y and stores it: along n where rows of Y are contiguous,
// else through a transposition of the 8x8 block, so that every lane stores two neighbouring m.
template <typename T>
__device__ __forceinline__ void store_pair(float first, float second, T* y, const Output& out, int m0, int n0) {
    const int lane = threadIdx.x % 32, m = m0 + lane / 4, n = n0 + lane % 4 * 2;
    const bool one = m < out.M && n < out.N, two = m < out.M && n + 1 < out.N;
    evo::Vector<T, 2> pair;
    pair.items[0] = out.value(first, m, n);
    pair.items[1] = out.value(second, m, n + 1);
    if constexpr (!evo::Y_ROW && sizeof(T) == 2) {
        evo::Vector<T, 2> column;  // now of column n0 + lane / 4, rows m0 + lane % 4 * 2 and the next
        column.word = evo::movmatrix_trans(pair.word);
        const int to_m = m0 + lane % 4 * 2, to_n = n0 + lane / 4;
        T* target = y + evo::y_index(to_m, to_n, out.ldy);
        if (to_n < out.N && to_m + 1 < out.M && out.ldy % 2 == 0) {
            evo::store_vector(target, column);
        } else if (to_n < out.N) {
            if (to_m < out.M) target[0] = column.items[0];
            if (to_m + 1 < out.M) target[1] = column.items[1];
        }
    } else if (evo::Y_ROW && two && out.ldy % 2 == 0) {
        evo::store_vector(y + evo::y_index(m, n, out.ldy), pair);
    } else {
        if (one) y[evo::y_index(m, n, out.ldy)] = pair.items[0];
        if (two) y[evo::y_index(m, n + 1, out.ldy)] = pair.items[1];
    }
}
// endregion

// A warp's sums: 16 rows from m0, bn columns from n0.
template <class S>
__device__ __forceinline__ void store_tile(const float (&acc)[S::bn / 8][4], const Output& out, int m0, int n0) {
#pragma unroll
    for (int nt = 0; nt < S::bn / 8; ++nt)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            store_pair(acc[nt][half * 2], acc[nt][half * 2 + 1], out.y, out, m0 + half * 8, n0 + nt * 8);
}

template <class S>
__device__ __forceinline__ void gemm_narrow(const Work<S>& work, const Output& out) {
    const int tile = threadIdx.x / 32 % S::mt, part = threadIdx.x / 32 / S::mt;
    float acc[S::bn / 8][4] = {};
    multiply_narrow(acc, work, tile, part);
    combine_warps<S>(acc, reinterpret_cast<float*>(work.ring), tile, part);
    if (part == 0) store_tile<S>(acc, out, work.m0 + tile * 16, work.n0);
}

// A block: consumers multiply, the first thread behind them copies.
template <class S>
__device__ __forceinline__ void gemm_tile(const evo::TensorMap* w, const evo::TensorMap* x, const Output& out, int K) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Work<S> work(shared, out.M, out.N, K);
    if (threadIdx.x < S::bm) out.prefetch_bias(work.m0 + threadIdx.x);
    start_ring(work, w, x);
    if (threadIdx.x >= S::consumers) {
        if constexpr (S::wgmma)
            if constexpr (S::registers != 0) evo::register_decrease<24>();
        if (threadIdx.x == S::consumers) continue_copies(work, w, x);
    } else if constexpr (S::wgmma) {
        gemm_wide(work, out);
    } else {
        gemm_narrow(work, out);
    }
}

// Copies a k64 block of LINES lines element by element, for operands that a tensor map cannot describe. LENGTH elements
// of a line are wanted; what lies past `lines` or `end` becomes zero.
template <int LINES, int LENGTH>
__device__ __forceinline__ void copy_block(unsigned char* block, const in_t* source, int line0, int at0, int lines,
                                           int end, int64_t ld) {
    in_t* elements = reinterpret_cast<in_t*>(block);
    for (int i = threadIdx.x; i < LINES * LENGTH; i += blockDim.x) {
        const int line = i / LENGTH, at = i % LENGTH;
        const bool inside = line0 + line < lines && at0 + at < end;
        elements[line * 64 + (at / 8 ^ line % 8) * 8 + at % 8] =
            inside ? source[int64_t(line0 + line) * ld + at0 + at] : evo::from_float<in_t>(0.0f);
    }
}

template <class S>
__device__ __forceinline__ void gemm_elements(const in_t* w, const in_t* x, const Output& out, int K, int64_t ldx) {
    extern __shared__ __align__(1024) unsigned char shared[];
    const Work<S> work(shared, out.M, out.N, K);
    const int tile = threadIdx.x / 32;
    float acc[S::bn / 8][4] = {};
    for (int k = 0; k < K; k += 64) {
        copy_block<S::bm, 64>(shared, w, work.m0, k, out.M, K, K);
        if constexpr (evo::X_ROW)
            copy_block<64, S::bn>(shared + S::w_bytes, x, k, work.n0, K, out.N, ldx);
        else
            copy_block<S::bn, 64>(shared + S::w_bytes, x, work.n0, k, out.N, K, ldx);
        __syncthreads();
        multiply_block<S>(acc, shared + tile * 16 * 128, shared + S::w_bytes);
        __syncthreads();
    }
    store_tile<S>(acc, out, work.m0 + tile * 16, work.n0);
}

extern "C" __global__ void __launch_bounds__(Large::threads, 1)
gemm(const __grid_constant__ evo::TensorMap w_map, const __grid_constant__ evo::TensorMap x_map, out_t* y,
     const in_t* bias, const out_t* residual, float scale, int M, int N, int K, int64_t ldy) {
    gemm_tile<Large>(&w_map, &x_map, Output{y, {bias, residual, scale}, M, N, ldy}, K);
}

extern "C" __global__ void __launch_bounds__(Small::threads)
gemm_small(const __grid_constant__ evo::TensorMap w_map, const __grid_constant__ evo::TensorMap x_map, out_t* y,
           const in_t* bias, const out_t* residual, float scale, int M, int N, int K, int64_t ldy) {
    gemm_tile<Small>(&w_map, &x_map, Output{y, {bias, residual, scale}, M, N, ldy}, K);
}

extern "C" __global__ void __launch_bounds__(Unaligned::consumers)
gemm_unaligned(const in_t* values, const in_t* x, out_t* y, const in_t* bias, const out_t* residual, float scale, int M,
               int N, int K, int64_t ldx, int64_t ldy) {
    gemm_elements<Unaligned>(values, x, Output{y, {bias, residual, scale}, M, N, ldy}, K, ldx);
}
