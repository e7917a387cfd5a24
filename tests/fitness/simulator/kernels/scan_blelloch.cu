// Exclusive scan of one block by up- and down-sweep, with padding against bank conflicts.
__device__ int padded(int i) { return i + i / 32; }

extern "C" __global__ void scan(const unsigned* x, unsigned* y) {
    extern __shared__ unsigned tree[];
    const int t = threadIdx.x, n = 2 * blockDim.x;
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    tree[padded(t)] = x[t];
    tree[padded(t + n / 2)] = x[t + n / 2];
    int step = 1;
    for (int d = n / 2; d; d /= 2, step *= 2) {
        __syncthreads();
        if (t < d) tree[padded(step * (2 * t + 2) - 1)] += tree[padded(step * (2 * t + 1) - 1)];
    }
    if (t == 0) tree[padded(n - 1)] = 0;
    for (int d = 1; d < n; d *= 2) {
        step /= 2;
        __syncthreads();
        if (t < d) {
            const int low = padded(step * (2 * t + 1) - 1), high = padded(step * (2 * t + 2) - 1);
            const unsigned kept = tree[low];
            tree[low] = tree[high];
            tree[high] += kept;
        }
    }
    __syncthreads();
    y[t] = tree[padded(t)];
    y[t + n / 2] = tree[padded(t + n / 2)];
}
