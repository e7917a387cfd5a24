// Tiled transpose of 16-bit elements through padded shared memory, blocks of 32 x 32 by 32 x 8 threads, any size.
extern "C" __global__ void transpose(const unsigned short* x, unsigned short* y, int rows, int columns) {
    __shared__ unsigned short tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (c < columns && r + i < rows) tile[threadIdx.y + i][threadIdx.x] = x[(r + i) * columns + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x;
    r = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8)
        if (c < rows && r + i < columns) y[(r + i) * rows + c] = tile[threadIdx.x][threadIdx.y + i];
}
