// Bitonic sort of 256 keys with payloads per block: shuffles within a warp, shared memory beyond.
extern "C" __global__ void sort(const float* keys, const int* payload, float* sorted, int* moved) {
    __shared__ float k[256];
    __shared__ int p[256];
    const int t = threadIdx.x, at = blockIdx.x * 256 + t;
    float key = keys[at];
    int value = payload[at];
    for (int size = 2; size <= 256; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            float other;
            int its;
            if (step < 32) {
                other = __shfl_xor_sync(~0u, key, step);
                its = __shfl_xor_sync(~0u, value, step);
            } else {
                __syncthreads();
                k[t] = key;
                p[t] = value;
                __syncthreads();
                other = k[t ^ step];
                its = p[t ^ step];
            }
            const bool up = (t & size) == 0, low = (t & step) == 0;
            if ((key > other) == (up == low) && key != other) {
                key = other;
                value = its;
            }
        }
    sorted[at] = key;
    moved[at] = value;
}
