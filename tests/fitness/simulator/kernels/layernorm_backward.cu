// Gradients of layer normalisation: a block takes some rows; those of gamma and beta are summed up by atomics.
__device__ float2 block_sum(float2 v, float2* parts) {
    for (int step = 16; step; step /= 2) {
        v.x += __shfl_xor_sync(~0u, v.x, step);
        v.y += __shfl_xor_sync(~0u, v.y, step);
    }
    __syncthreads();  // parts may still be read from the last call
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    float2 sum = parts[0];
    for (int w = 1; w < blockDim.x / 32; w++) sum.x += parts[w].x, sum.y += parts[w].y;
    return sum;
}

extern "C" __global__ void backward(const float* x, const float* dy, const float* gamma, float* dx, float* dgamma,
                                    float* dbeta, int rows, int n, int each, float eps) {
    extern __shared__ float held[];  // of this block: gradients of gamma, then of beta
    __shared__ float2 parts[8];
    for (int i = threadIdx.x; i < 2 * n; i += blockDim.x) held[i] = 0;
    const int last = min(rows, (blockIdx.x + 1) * each);
    for (int row = blockIdx.x * each; row < last; row++) {
        const float *in = x + row * n, *grad = dy + row * n;
        float2 moments = {};
        for (int i = threadIdx.x; i < n; i += blockDim.x) moments.x += in[i], moments.y += in[i] * in[i];
        moments = block_sum(moments, parts);
        const float mean = moments.x / n, scale = rsqrtf(moments.y / n - mean * mean + eps);
        float2 sums = {};
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const float hat = (in[i] - mean) * scale, g = grad[i] * gamma[i];
            sums.x += g, sums.y += g * hat;
            held[i] += grad[i] * hat;  // always the same thread's
            held[n + i] += grad[i];
        }
        sums = block_sum(sums, parts);
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            const float hat = (in[i] - mean) * scale;
            dx[row * n + i] = scale * (grad[i] * gamma[i] - (sums.x + hat * sums.y) / n);
        }
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        atomicAdd(dgamma + i, held[i]);
        atomicAdd(dbeta + i, held[n + i]);
    }
}
