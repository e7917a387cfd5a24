// wgmma.cuh: warpgroup matrix multiplication of sm_90a (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
// A warpgroup is four consecutive warps, the first of a rank divisible by four; warp i holds rows 16i..16i+15 of D.
#pragma once
#include "evo.cuh"

namespace evo {

// Descriptor of an operand in shared memory with the 128-byte swizzle, as a tensor map with swizzle 128B and a box 128
// bytes wide leaves it: lines of 128 bytes, groups of eight lines 1024 bytes apart. `tile`: aligned to 1024 bytes.
// K-major (lines are rows of A, columns of B): adding 2 moves on by 32 bytes along K; `leading` counts for nothing.
// M- or N-major (lines are k; 16-bit types): adding 128 moves on by 16 lines; the next 128 bytes of lines longer than
// that lie `leading` bytes further on.
__device__ __forceinline__ uint64_t wgmma_descriptor_128b(const void* tile, uint32_t leading = 16) {
    return uint64_t(1) << 62 | uint64_t(1024 >> 4) << 32 | uint64_t(leading >> 4) << 16 |
           (shared_address(tile) & 0x3ffff) >> 4;
}

// Descriptor of a K-major operand without swizzle: core matrices of 8 rows of 16 bytes, 128 bytes each, those along K one
// after another and those of the next eight rows `stride` bytes on. `tile`: aligned to 16 bytes.
// Adding 16 to it moves on by two core matrices along K.
__device__ __forceinline__ uint64_t wgmma_descriptor_core(const void* tile, uint32_t stride) {
    return uint64_t(stride >> 4) << 32 | uint64_t(128 >> 4) << 16 | (shared_address(tile) & 0x3ffff) >> 4;
}

// Before the first wgmma of a batch: orders what this warp wrote to registers that wgmma reads or adds to.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most PENDING of the latest groups are still at work.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// setmaxnreg: all warps of a warpgroup together; the kernel needs __launch_bounds__(threads, 1).
template <int REGISTERS>
__device__ __forceinline__ void register_increase() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void register_decrease() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Operand lists: names of the first n accumulators, and the accumulators themselves.
#define EVO_NAMES_4 "%0, %1, %2, %3"
#define EVO_NAMES_8 EVO_NAMES_4 ", %4, %5, %6, %7"
#define EVO_NAMES_16 EVO_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define EVO_NAMES_32 EVO_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define EVO_NAMES_64                                                                                        \
    EVO_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"         \
                 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define EVO_NAMES_128                                                                                       \
    EVO_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"         \
                 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"         \
                 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110"   \
                 ", %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124"     \
                 ", %125, %126, %127"
#define EVO_FLOATS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define EVO_FLOATS_8(i) EVO_FLOATS_4(i), EVO_FLOATS_4(i + 4)
#define EVO_FLOATS_16(i) EVO_FLOATS_8(i), EVO_FLOATS_8(i + 8)
#define EVO_FLOATS_32(i) EVO_FLOATS_16(i), EVO_FLOATS_16(i + 16)
#define EVO_FLOATS_64(i) EVO_FLOATS_32(i), EVO_FLOATS_32(i + 32)
#define EVO_FLOATS_128(i) EVO_FLOATS_64(i), EVO_FLOATS_64(i + 64)

// wgmma m64nNk16: d += A (64x16) * B (16xN), both in shared memory, fp32 accumulators. BF16: bf16 elements, else fp16;
// B_ROWS: B is N-major; A_COLUMNS: A is M-major. Registers of a warp's 16 rows: d[4 * j..] is D of mma.m16n8k16 for
// columns 8j..8j+7.
#define EVO_WGMMA_OF(TYPE, N, COUNT, A, B, S, T)                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" EVO_NAMES_##COUNT "}, "         \
                 "%" #A ", %" #B ", 1, 1, 1, %" #S ", %" #T ";"                                                       \
                 : EVO_FLOATS_##COUNT(0)                                                                              \
                 : "l"(a), "l"(b), "n"(int(A_COLUMNS)), "n"(int(B_ROWS)))
#define EVO_WGMMA(N, COUNT, A, B, S, T)                                                                               \
    template <bool BF16, bool B_ROWS, bool A_COLUMNS = false>                                                         \
    __device__ __forceinline__ void wgmma(float (&d)[COUNT], uint64_t a, uint64_t b) {                                \
        if constexpr (BF16)                                                                                           \
            EVO_WGMMA_OF("bf16", N, COUNT, A, B, S, T);                                                               \
        else                                                                                                          \
            EVO_WGMMA_OF("f16", N, COUNT, A, B, S, T);                                                                \
    }
EVO_WGMMA(8, 4, 4, 5, 6, 7)
EVO_WGMMA(16, 8, 8, 9, 10, 11)
EVO_WGMMA(32, 16, 16, 17, 18, 19)
EVO_WGMMA(64, 32, 32, 33, 34, 35)
EVO_WGMMA(128, 64, 64, 65, 66, 67)
EVO_WGMMA(256, 128, 128, 129, 130, 131)

// wgmma.sp m64nNk32: d += A (64x32 fp16, 2:4 sparse, in registers) * B (32xN fp16, in shared memory), fp32 accumulators.
// Registers of a warp's 16 rows are those of mma.sp.m16n8k32: d[4 * j..] is its D for columns 8j..8j+7, `a` its A,
// `metadata` and SELECTOR (0 or 1) as there.
#define EVO_WGMMA_SP(N, COUNT, A0, A1, A2, A3, B, E, S)                                                               \
    template <int SELECTOR>                                                                                           \
    __device__ __forceinline__ void wgmma_sp(float (&d)[COUNT], const uint32_t (&a)[4], uint64_t b, uint32_t metadata) { \
        asm volatile("wgmma.mma_async.sp.sync.aligned.m64n" #N "k32.f32.f16.f16 {" EVO_NAMES_##COUNT "}, "            \
                     "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", %" #E ", %" #S ", 1, 1, 1, 0;"               \
                     : EVO_FLOATS_##COUNT(0)                                                                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(metadata), "n"(SELECTOR));             \
    }
EVO_WGMMA_SP(8, 4, 4, 5, 6, 7, 8, 9, 10)
EVO_WGMMA_SP(16, 8, 8, 9, 10, 11, 12, 13, 14)
EVO_WGMMA_SP(32, 16, 16, 17, 18, 19, 20, 21, 22)
EVO_WGMMA_SP(64, 32, 32, 33, 34, 35, 36, 37, 38)
EVO_WGMMA_SP(128, 64, 64, 65, 66, 67, 68, 69, 70)
EVO_WGMMA_SP(256, 128, 128, 129, 130, 131, 132, 133, 134)

#undef EVO_WGMMA_SP
#undef EVO_WGMMA
#undef EVO_WGMMA_OF

}  // namespace evo
