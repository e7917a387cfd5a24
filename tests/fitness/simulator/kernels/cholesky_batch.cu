// Cholesky factors of small double-precision matrices, one to a block, in shared memory.
extern "C" __global__ void cholesky(const double* a, double* l, int n) {
    extern __shared__ double s[];
    const int t = threadIdx.x;
    a += blockIdx.x * n * n;
    l += blockIdx.x * n * n;
    for (int i = t; i < n * n; i += blockDim.x) s[i] = a[i];
    for (int k = 0; k < n; k++) {
        __syncthreads();
        if (t == 0) s[k * n + k] = sqrt(s[k * n + k]);
        __syncthreads();
        for (int i = k + 1 + t; i < n; i += blockDim.x) s[i * n + k] /= s[k * n + k];
        __syncthreads();
        for (int i = t; i < (n - k - 1) * (n - k - 1); i += blockDim.x) {
            const int r = k + 1 + i / (n - k - 1), c = k + 1 + i % (n - k - 1);
            if (c <= r) s[r * n + c] -= s[r * n + k] * s[c * n + k];
        }
    }
    __syncthreads();
    for (int i = t; i < n * n; i += blockDim.x) l[i] = i % n <= i / n ? s[i] : 0;
}
