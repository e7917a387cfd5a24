// int8 GEMM by dp4a with per-row and per-column scales.
extern "C" __global__ void gemm(const int* a, const int* b, const float* scale_a, const float* scale_b, float* c, int m,
                                int n, int words) {
    __shared__ int as[16][17], bs[16][17];
    const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    int sum = 0;
    for (int start = 0; start < words; start += 16) {
        as[threadIdx.y][threadIdx.x] = a[row * words + start + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(blockIdx.x * 16 + threadIdx.y) * words + start + threadIdx.x];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) sum = __dp4a(as[threadIdx.y][i], bs[threadIdx.x][i], sum);
        __syncthreads();
    }
    c[row * n + column] = __int2float_rn(sum) * scale_a[row] * scale_b[column];
}
