// Sampled product: (A B^T) at the nonzeros of a CSR matrix. Eight lanes take an entry, eight half2 each of both rows.
#include <cuda_fp16.h>

extern "C" __global__ void sample(const int* indptr, const int* indices, const __half2* a, const __half2* b,
                                  const float* scale, float* out, int rows, int pairs) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y, team = threadIdx.x / 8, lane = threadIdx.x % 8;
    if (row >= rows) return;
    const int end = indptr[row + 1];
    for (int first = indptr[row]; first < end; first += 4) {
        const int at = first + team;
        float sum = 0;
        if (at < end) {
            const __half2 *left = a + row * pairs, *right = b + indices[at] * pairs;
            for (int i = lane; i < pairs; i += 8) {
                const float2 product = __half22float2(__hmul2(left[i], right[i]));
                sum += product.x + product.y;
            }
        }
        sum += __shfl_xor_sync(~0u, sum, 4);
        sum += __shfl_xor_sync(~0u, sum, 2);
        sum += __shfl_xor_sync(~0u, sum, 1);
        if (lane == 0 && at < end) out[at] = scale[at] * sum;
    }
}
