// Seven-point stencil marching along z: the plane in shared memory with its halo, neighbours in z in registers.
extern "C" __global__ void stencil(const float* x, float* y, int nx, int ny, int nz, float c0, float c1) {
    __shared__ float plane[10][34];
    const int i = blockIdx.x * 32 + threadIdx.x, j = blockIdx.y * 8 + threadIdx.y;
    auto at = [&](int a, int b, int c) {
        return a < 0 || b < 0 || c < 0 || a >= nx || b >= ny || c >= nz ? 0.0f : x[(c * ny + b) * nx + a];
    };
    float below = 0, here = at(i, j, 0);
    for (int k = 0; k < nz; k++) {
        const float above = at(i, j, k + 1);
        __syncthreads();
        plane[threadIdx.y + 1][threadIdx.x + 1] = here;
        if (threadIdx.y == 0) plane[0][threadIdx.x + 1] = at(i, j - 1, k);
        if (threadIdx.y == 7) plane[9][threadIdx.x + 1] = at(i, j + 1, k);
        if (threadIdx.x == 0) plane[threadIdx.y + 1][0] = at(i - 1, j, k);
        if (threadIdx.x == 31) plane[threadIdx.y + 1][33] = at(i + 1, j, k);
        __syncthreads();
        if (i < nx && j < ny) {
            const float around = plane[threadIdx.y][threadIdx.x + 1] + plane[threadIdx.y + 2][threadIdx.x + 1] +
                                 plane[threadIdx.y + 1][threadIdx.x] + plane[threadIdx.y + 1][threadIdx.x + 2];
            y[(k * ny + j) * nx + i] = c0 * here + c1 * (around + below + above);
        }
        below = here;
        here = above;
    }
}
