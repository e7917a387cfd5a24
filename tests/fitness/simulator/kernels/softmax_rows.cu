// Row softmax in one pass over registers: a block per row, maximum and sum by warp shuffles, then across warps.
#include "evo.cuh"

template <typename Op>
__device__ float block_reduce(float v, float start, Op op) {
    __shared__ float part[32];
    for (int i = 16; i; i /= 2) v = op(v, __shfl_xor_sync(~0u, v, i));
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = lane < blockDim.x / 32 ? part[lane] : start;
    for (int i = 16; i; i /= 2) v = op(v, __shfl_xor_sync(~0u, v, i));
    return v;
}

extern "C" __global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int n) {
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    float held[8], top = -INFINITY;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = threadIdx.x + i * blockDim.x;
        held[i] = at < n ? __ldg(x + at) : -INFINITY;
        top = fmaxf(top, held[i]);
    }
    top = block_reduce(top, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += held[i] = __expf(held[i] - top);
    sum = block_reduce(sum, 0, [](float a, float b) { return a + b; });
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = threadIdx.x + i * blockDim.x;
        if (at < n) y[at] = __fdividef(held[i], sum);
    }
}
