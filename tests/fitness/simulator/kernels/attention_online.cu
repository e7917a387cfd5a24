// Attention with an online softmax: a block takes 32 queries, keys and values pass through shared memory in tiles.
#include "evo.cuh"
constexpr int D = 32, TILE = 32;

extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* o, int n, float scale,
                                     int causal) {
    __shared__ float keys[TILE][D + 1], values[TILE][D];
    const int row = blockIdx.x * 32 + threadIdx.y * 8 + threadIdx.x / 4, part = threadIdx.x % 4;
    float own[D / 4], sum[D / 4] = {}, top = -INFINITY, total = 0;
    for (int i = 0; i < D / 4; i++) own[i] = row < n ? q[row * D + 4 * i + part] * scale : 0;
    const int last = causal ? min(n, (blockIdx.x + 1) * 32) : n;
    for (int start = 0; start < last; start += TILE) {
        __syncthreads();
        for (int i = threadIdx.y * 32 + threadIdx.x; i < TILE * D; i += 128) {
            const bool in = start + i / D < n;
            keys[i / D][i % D] = in ? k[start * D + i] : 0;
            values[i / D][i % D] = in ? v[start * D + i] : 0;
        }
        __syncthreads();
        for (int j = 0; j < TILE; j++) {
            float s = 0;
            for (int i = 0; i < D / 4; i++) s += own[i] * keys[j][4 * i + part];
            s += __shfl_xor_sync(~0u, s, 1);
            s += __shfl_xor_sync(~0u, s, 2);
            const int column = start + j;
            if (column >= n || (causal && column > row)) continue;
            const float next = fmaxf(top, s), shrink = exp2f((top - next) * 1.44269504f);
            const float p = exp2f((s - next) * 1.44269504f);
            total = total * shrink + p;
            for (int i = 0; i < D / 4; i++) sum[i] = sum[i] * shrink + p * values[j][4 * i + part];
            top = next;
        }
    }
    if (row < n)
        for (int i = 0; i < D / 4; i++) o[row * D + 4 * i + part] = sum[i] / total;
}
