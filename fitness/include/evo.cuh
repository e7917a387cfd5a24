// evo.cuh: the prelude of candidate kernels. Thin, dependency-light wrappers over PTX that NVRTC offers no
// intrinsic for. Every wrapper is one instruction; PTX ISA section names stand beside them.
#pragma once
#include <cuda_fp16.h>

#ifdef __CUDACC_RTC__  // NVRTC has no standard headers; nvcc includes some that define these
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;

using uintptr_t = unsigned long long;
#else
#include <cstdint>
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

namespace evo {

template <typename T>
__host__ __device__ constexpr T cdiv(T a, T b) {
    return (a + b - 1) / b;
}

template <typename T>
__host__ __device__ constexpr T larger(T a, T b) {
    return a > b ? a : b;
}

// Address of a shared-memory object in the shared window, as PTX operands want it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// cp.async (sm_80+): 16 bytes global -> shared past L1. `bytes` < 16 zero-fills the rest; 0 reads nothing.
__device__ __forceinline__ void cp_async16(void* target, const void* source) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(target)), "l"(source) : "memory");
}

__device__ __forceinline__ void cp_async16_zfill(void* target, const void* source, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's latest groups are still in flight.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// cp.async of 8 or 4 bytes, through L1; `bytes` below that zero-fills the rest.
__device__ __forceinline__ void cp_async8_zfill(void* target, const void* source, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async4_zfill(void* target, const void* source, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(target)), "l"(source), "r"(bytes)
                 : "memory");
}

// prefetch: the line of `source` (global memory) is brought to L2.
__device__ __forceinline__ void prefetch_l2(const void* source) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(source)));
}

// ldmatrix (sm_75+): four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the row addresses of matrix i.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Two 8x8 matrices; lanes 0..15 give the row addresses.
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}

// mma.m16n8k16 (sm_80+): d += A (16x16 fp16, row) * B (16x8 fp16, col), fp32 accumulators.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// mma.sp::ordered_metadata.m16n8k32 (sm_80+): A is 2:4 sparse, stored as 16x16; SELECTOR 0: lanes with
// lane % 4 in {0, 1} supply the metadata, 1: lanes with lane % 4 in {2, 3}.
template <int SELECTOR>
__device__ __forceinline__ void mma_sp_m16n8k32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                                                uint32_t metadata) {
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]),
                   "r"(metadata), "n"(SELECTOR));
}

// movmatrix (sm_75+): transposes an 8x8 matrix of 16-bit elements held across the warp.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t value) {
    uint32_t result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(value));
    return result;
}

// bar.sync: barrier `id` (1..15; 0 is __syncthreads) among `threads` threads of the block, whole warps.
__device__ __forceinline__ void named_barrier(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// stmatrix (sm_90+): two 8x8 matrices of 16-bit elements; lanes 0..15 give the row addresses.
__device__ __forceinline__ void stmatrix_x2(void* row, uint32_t first, uint32_t second) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%0], {%1, %2};" ::"r"(shared_address(row)), "r"(first),
                 "r"(second)
                 : "memory");
}

// The same, transposed.
__device__ __forceinline__ void stmatrix_x2_trans(void* row, uint32_t first, uint32_t second) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};" ::"r"(shared_address(row)),
                 "r"(first), "r"(second)
                 : "memory");
}

// ---- sm_90: mbarrier, an 8-byte object in shared memory.

__device__ __forceinline__ void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void mbarrier_inval(uint64_t* barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Makes initialised mbarriers visible to asynchronous copies and to the cluster; a barrier must follow.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives and announces `bytes` that asynchronous copies will bring in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Arrives at the mbarrier at the same place in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint64_t* barrier, uint32_t rank) {
    asm volatile("{\n.reg .b32 remote;\n"
                 "mapa.shared::cluster.u32 remote, %0, %1;\n"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(barrier)),
                 "r"(rank)
                 : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(uint64_t* barrier, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred done;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return done != 0;
}

// Waits for the end of the phase with this parity: 0 for the first, 1 for the second, and so on in turn.
__device__ __forceinline__ void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

// cp.async of this thread so far counts as one of the arrivals the mbarrier was initialised for.
__device__ __forceinline__ void cp_async_mbarrier_arrive(uint64_t* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// ---- sm_90: bulk copies by the copy engine; one thread issues them. Sizes and addresses: multiples of 16 bytes.

// Orders this thread's plain accesses to shared memory before asynchronous ones (bulk stores, wgmma).
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Global -> shared; the bytes count towards the mbarrier's present phase.
__device__ __forceinline__ void bulk_load(void* target, const void* source, uint32_t bytes, uint64_t* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(target)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// Shared -> global, in this thread's bulk group.
__device__ __forceinline__ void bulk_store(void* target, const void* source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target),
                 "r"(shared_address(source)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's latest groups still read shared memory.
template <int PENDING>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// The same until what they wrote is visible.
template <int PENDING>
__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

// A tensor map ([[tensormap]] of the header): parameter `const __grid_constant__ evo::TensorMap name`.
struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// A box of the tensor at element coordinates (innermost first) -> shared memory, aligned to 128 bytes.
__device__ __forceinline__ void tensor_load(void* target, const TensorMap* map, int c0, int c1, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
            "r"(shared_address(target)),
        "l"(map), "r"(c0), "r"(c1), "r"(shared_address(barrier))
        : "memory");
}

__device__ __forceinline__ void tensor_load(void* target, const TensorMap* map, int c0, int c1, int c2,
                                            uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(target)),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(shared_address(barrier))
                 : "memory");
}

// The same into the blocks of the cluster whose bits are set in `blocks`, at the same place in each.
__device__ __forceinline__ void tensor_load_multicast(void* target, const TensorMap* map, int c0, int c1,
                                                      uint64_t* barrier, uint16_t blocks) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(target)),
                 "l"(map), "r"(c0), "r"(c1), "r"(shared_address(barrier)), "h"(blocks)
                 : "memory");
}

__device__ __forceinline__ void tensor_store(const TensorMap* map, int c0, int c1, const void* source) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(c0), "r"(c1), "r"(shared_address(source))
                 : "memory");
}

// ---- sm_90: thread-block clusters.

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where `pointer` of this block lies in block `rank` of the cluster, as an address of the shared::cluster window.
__device__ __forceinline__ uint32_t cluster_address(const void* pointer, uint32_t rank) {
    uint32_t address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
    return address;
}

__device__ __forceinline__ void cluster_store(uint32_t address, float a, float b, float c, float d) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}

}  // namespace evo
