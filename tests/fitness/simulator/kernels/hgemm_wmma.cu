// Half-precision GEMM by the wmma API, accumulators through shared memory for a fused bias and ReLU.
#include <mma.h>
using namespace nvcuda::wmma;

extern "C" __global__ void gemm(const half* a, const half* b, const float* bias, half* c, int m, int n, int k) {
    __shared__ float tile[4][16 * 16];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = blockIdx.y * 32 + warp / 2 * 16, column = blockIdx.x * 32 + warp % 2 * 16;
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 0.0f);
    for (int i = 0; i < k; i += 16) {
        load_matrix_sync(fa, a + row * k + i, k);
        load_matrix_sync(fb, b + column * k + i, k);
        mma_sync(sum, fa, fb, sum);
    }
    store_matrix_sync(tile[warp], sum, 16, mem_row_major);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) {
        const float v = tile[warp][i] + bias[column + i % 16];
        c[(row + i / 16) * n + column + i % 16] = __float2half(fmaxf(v, 0));
    }
}
