// Matrix-vector product in half2 arithmetic with float totals, a warp per row, eight values to a load.
#include <cuda_fp16.h>

extern "C" __global__ void gemv(const uint4* a, const uint4* x, __half* y, int octets) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    float total = 0;
    for (int i = threadIdx.x; i < octets; i += 32) {
        const uint4 av = __ldcs(a + row * octets + i), xv = __ldg(x + i);
        const __half2* ah = reinterpret_cast<const __half2*>(&av);
        const __half2* xh = reinterpret_cast<const __half2*>(&xv);
        __half2 sum = __float2half2_rn(0);
        for (int j = 0; j < 4; j++) sum = __hfma2(ah[j], xh[j], sum);
        total += __low2float(sum) + __high2float(sum);
    }
    for (int i = 16; i; i /= 2) total += __shfl_down_sync(~0u, total, i);
    if (threadIdx.x == 0) y[row] = __float2half_rn(total);
}
