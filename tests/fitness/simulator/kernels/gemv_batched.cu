// y = W x for a batch of vectors: a warp takes a row, float4 reads of W that bypass L1 serve four vectors at once.
extern "C" __global__ void __launch_bounds__(128)
gemv(const float4* w, const float4* x, float* y, int rows, int quads, int batch) {
    const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.y * 4;
    if (row >= rows) return;
    float sum[4] = {};
    for (int i = lane; i < quads; i += 32) {
        const float4 a = __ldcs(w + size_t(row) * quads + i);
#pragma unroll
        for (int b = 0; b < 4; b++) {
            if (first + b >= batch) break;
            const float4 v = __ldg(x + (first + b) * quads + i);
            sum[b] = fmaf(a.x, v.x, fmaf(a.y, v.y, fmaf(a.z, v.z, fmaf(a.w, v.w, sum[b]))));
        }
    }
    // Each step halves the vectors a lane holds: lane 0, 8, 16, 24 end with one sum each.
    const bool high = lane & 16;
    float two[2];
    for (int b = 0; b < 2; b++) {
        const float keep = high ? sum[b + 2] : sum[b], give = high ? sum[b] : sum[b + 2];
        two[b] = keep + __shfl_xor_sync(~0u, give, 16);
    }
    const bool odd = lane & 8;
    float one = (odd ? two[1] : two[0]) + __shfl_xor_sync(~0u, odd ? two[0] : two[1], 8);
    for (int step = 4; step; step /= 2) one += __shfl_down_sync(~0u, one, step, 8);
    const int b = first + (high ? 2 : 0) + (odd ? 1 : 0);
    if (lane % 8 == 0 && b < batch) y[b * rows + row] = one;
}
