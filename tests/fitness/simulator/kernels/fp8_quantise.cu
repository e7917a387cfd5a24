// Rows to fp8 (e4m3) with a scale per row, and back: maximum by redux on float bits, saturating conversions.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void quantise(const float* x, unsigned char* q, float* scales, __half* back, int n) {
    const int lane = threadIdx.x, row = blockIdx.x;
    unsigned top = 0;
    for (int i = lane; i < n; i += 32) top = max(top, __float_as_uint(fabsf(x[row * n + i])));
    top = __reduce_max_sync(~0u, top);
    const float scale = top ? __uint_as_float(top) / 448.0f : 1.0f;
    if (lane == 0) scales[row] = scale;
    for (int i = lane; i < n; i += 32) {
        const __nv_fp8_e4m3 v(x[row * n + i] / scale);
        q[row * n + i] = v.__x;
        back[row * n + i] = __half(v);
    }
}
