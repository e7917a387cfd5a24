// evo.cuh: the prelude every kernel may include (#include "evo.cuh").
//
// NVRTC has no host headers: this file supplies the fixed-width integers, INFINITY and cdiv, and thin
// wrappers around the PTX instructions kernels for sparse and dense linear algebra use most. Each wrapper
// is one instruction; the comment names its section of the PTX ISA. Nothing here allocates or hides state.
#ifndef EVO_CUH
#define EVO_CUH

// The same underlying types as the headers of NVRTC and CCCL use, so that mixing them compiles.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef signed short int16_t;
typedef unsigned short uint16_t;
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

namespace evo {

template <class A, class B>
__device__ __forceinline__ constexpr A cdiv(A a, B b) {
  return static_cast<A>((a + static_cast<A>(b) - 1) / static_cast<A>(b));
}

template <class A, class B>
__device__ __forceinline__ constexpr A round_up(A a, B b) {
  return cdiv(a, b) * static_cast<A>(b);
}

// Address of shared memory as the 32-bit operand of ld.shared, cp.async, ldmatrix.
__device__ __forceinline__ uint32_t smem(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// cp.async (PTX ISA "Data Movement: cp.async"): 16 bytes global -> shared, past L1; both 16-byte aligned.
// `bytes` < 16 zero-fills the rest and reads only `bytes`.
__device__ __forceinline__ void cp_async16(void* shared, const void* global, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem(shared)), "l"(global), "r"(bytes) : "memory");
}

// The same for 8 and 4 bytes, through L1.
__device__ __forceinline__ void cp_async8(void* shared, const void* global, int bytes = 8) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(smem(shared)), "l"(global), "r"(bytes) : "memory");
}

__device__ __forceinline__ void cp_async4(void* shared, const void* global, int bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem(shared)), "l"(global), "r"(bytes) : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's latest groups are in flight; follow with a barrier before other
// threads read what this one copied.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ldmatrix (PTX ISA "Warp-level matrix load"): four 8x8 matrices of 16-bit elements; lane l gives the address
// of row l % 8 of matrix l / 8, 16-byte aligned.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem(row))
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(smem(row))
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem(row))
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(smem(row))
               : "memory");
}

// mma.sync m16n8k16, fp16 operands, fp32 accumulators: d += a * b (PTX ISA "Matrix multiply-accumulate").
__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same on bf16 operands.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// mma.sp m16n8k32, fp16: `a` holds the stored half of a 2:4 sparse 16x32 tile, `meta` its metadata word of
// format nm24, SELECTOR 0 for the first k32 of a k64 block and 1 for the second.
template <int SELECTOR>
__device__ __forceinline__ void mma_sp_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                                           uint32_t meta) {
  asm volatile(
      "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(meta),
        "n"(SELECTOR));
}

template <int SELECTOR>
__device__ __forceinline__ void mma_sp_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                                            uint32_t meta) {
  asm volatile(
      "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(meta),
        "n"(SELECTOR));
}

}  // namespace evo

#endif  // EVO_CUH
