// task.cuh: what the task says, for kernels that serve several: element types, layouts and the epilogue.
// The harness defines EVO_IN, EVO_OUT, EVO_X_ROW, EVO_Y_ROW and EVO_EPILOGUE where they differ from the defaults here.
#pragma once
#include "evo.cuh"

#define EVO_FLOAT16 1
#define EVO_BFLOAT16 2
#define EVO_FLOAT32 3

#ifndef EVO_IN
#define EVO_IN EVO_FLOAT16
#endif
#ifndef EVO_OUT
#define EVO_OUT EVO_IN
#endif
#ifndef EVO_X_ROW
#define EVO_X_ROW 0
#endif
#ifndef EVO_Y_ROW
#define EVO_Y_ROW 0
#endif
#ifndef EVO_EPILOGUE
#define EVO_EPILOGUE
#define EVO_HAS_EPILOGUE 0
#else
#define EVO_HAS_EPILOGUE 1
#endif

#if EVO_IN == EVO_BFLOAT16 || EVO_OUT == EVO_BFLOAT16
#include <cuda_bf16.h>
#endif

namespace evo {

// -- element types: in_t of W, X and bias; out_t of Y and residual -----------------------------------------------------

template <int>
struct ElementType;
template <>
struct ElementType<EVO_FLOAT16> { using type = __half; };
template <>
struct ElementType<EVO_FLOAT32> { using type = float; };
#if EVO_IN == EVO_BFLOAT16 || EVO_OUT == EVO_BFLOAT16
template <>
struct ElementType<EVO_BFLOAT16> { using type = __nv_bfloat16; };
#endif
using in_t = ElementType<EVO_IN>::type;
using out_t = ElementType<EVO_OUT>::type;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }

// Rounds to nearest even.
template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) { return value; }
template <>
__device__ __forceinline__ __half from_float<__half>(float value) { return __float2half_rn(value); }
#if EVO_IN == EVO_BFLOAT16 || EVO_OUT == EVO_BFLOAT16
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) { return __float2bfloat16_rn(value); }
#endif

// -- vectors: COUNT neighbouring elements in one access of 2 to 16 bytes ------------------------------------------------

template <int BYTES>
struct Word;
template <>
struct Word<2> { using type = uint16_t; };
template <>
struct Word<4> { using type = uint32_t; };
template <>
struct Word<8> { using type = uint2; };
template <>
struct Word<16> { using type = uint4; };
template <>
struct Word<32> {
    struct type { uint4 low, high; };  // two accesses
};

template <typename T, int COUNT>
union Vector {
    typename Word<sizeof(T) * COUNT>::type word;
    T items[COUNT];
    __device__ __forceinline__ Vector() {}
};

// `source` aligned to the vector's size.
template <int COUNT, typename T>
__device__ __forceinline__ Vector<T, COUNT> load_vector(const T* source) {
    Vector<T, COUNT> vector;
    vector.word = *reinterpret_cast<const decltype(vector.word)*>(source);
    return vector;
}

// The same through the read-only path (ld.global.nc): only for what no thread of this launch writes.
template <int COUNT, typename T>
__device__ __forceinline__ Vector<T, COUNT> load_readonly(const T* source) {
    Vector<T, COUNT> vector;
    vector.word = __ldg(reinterpret_cast<const decltype(vector.word)*>(source));
    return vector;
}

template <int COUNT, typename T>
__device__ __forceinline__ void store_vector(T* target, const Vector<T, COUNT>& vector) {
    *reinterpret_cast<typename Word<sizeof(T) * COUNT>::type*>(target) = vector.word;
}

// COUNT neighbours as floats through the read-only path, in accesses of at most 16 bytes; `source` aligned to them.
template <int COUNT, typename T>
__device__ __forceinline__ void load_floats(float (&values)[COUNT], const T* source) {
    constexpr int WIDTH = COUNT * sizeof(T) <= 16 ? COUNT : 16 / int(sizeof(T));
#pragma unroll
    for (int i = 0; i < COUNT; i += WIDTH) {
        const Vector<T, WIDTH> vector = load_readonly<WIDTH>(source + i);
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) values[i + j] = to_float(vector.items[j]);
    }
}

// COUNT neighbours, in accesses of at most 16 bytes; `target` aligned to them.
template <int COUNT, typename T>
__device__ __forceinline__ void store_items(T* target, const T (&items)[COUNT]) {
    constexpr int WIDTH = COUNT * sizeof(T) <= 16 ? COUNT : 16 / int(sizeof(T));
#pragma unroll
    for (int i = 0; i < COUNT; i += WIDTH) {
        Vector<T, WIDTH> vector;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) vector.items[j] = items[i + j];
        store_vector(target + i, vector);
    }
}

// -- layouts -----------------------------------------------------------------------------------------------------------

constexpr bool X_ROW = EVO_X_ROW, Y_ROW = EVO_Y_ROW;

__device__ __forceinline__ int64_t x_index(int64_t k, int64_t n, int64_t ldx) {
    return X_ROW ? k * ldx + n : n * ldx + k;
}

__device__ __forceinline__ int64_t y_index(int64_t m, int64_t n, int64_t ldy) {
    return Y_ROW ? m * ldy + n : n * ldy + m;
}

// -- epilogue ----------------------------------------------------------------------------------------------------------

#define EVO_TEXT_OF(...) #__VA_ARGS__
#define EVO_TEXT(...) EVO_TEXT_OF(__VA_ARGS__)

__host__ __device__ constexpr bool contains(const char* text, const char* part) {
    for (; *text; ++text) {
        int i = 0;
        while (part[i] && text[i] == part[i]) ++i;
        if (!part[i]) return true;
    }
    return false;
}

// The task's chain on one fp32 sum. Pass the arguments `bias`, `residual` and `scale` on; which are used, the task says.
struct Epilogue {
    static constexpr bool HAS_BIAS = contains(EVO_TEXT(EVO_EPILOGUE), ".bias()");

    const in_t* bias;
    const out_t* residual;
    float scale;

    struct Value {
        float v;
        const Epilogue& operands;
        int m;
        int64_t at;
        __device__ __forceinline__ Value bias() const { return with(v + to_float(operands.bias[m])); }
        __device__ __forceinline__ Value residual() const { return with(v + to_float(operands.residual[at])); }
        __device__ __forceinline__ Value scale() const { return with(v * operands.scale); }
        __device__ __forceinline__ Value relu() const { return with(v < 0.0f ? 0.0f : v); }  // NaN stays NaN
        __device__ __forceinline__ Value gelu() const { return with(0.5f * v * (1.0f + erff(v * 0.70710678f))); }
        __device__ __forceinline__ Value gelu_tanh() const {
            return with(0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v))));
        }
        __device__ __forceinline__ Value silu() const { return with(v / (1.0f + __expf(-v))); }
        __device__ __forceinline__ Value with(float value) const { return Value{value, operands, m, at}; }
    };

    // `sum` of output feature m; `at`: where it goes in Y, as y_index gives it.
    __device__ __forceinline__ out_t operator()(float sum, int m, int64_t at) const {
        return from_float<out_t>(Value{sum, *this, m, at} EVO_EPILOGUE.v);
    }
};

// -- tensor cores ------------------------------------------------------------------------------------------------------

#if EVO_IN != EVO_FLOAT32
// mma.m16n8k16 (sm_80+) of in_t, fp16 or bf16: d += A (16x16, row) * B (16x8, col), fp32 accumulators.
__device__ __forceinline__ void mma_in(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if EVO_IN == EVO_BFLOAT16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    mma_m16n8k16(d, a, b0, b1);
#endif
}
#endif

#undef EVO_TEXT
#undef EVO_TEXT_OF

}  // namespace evo
