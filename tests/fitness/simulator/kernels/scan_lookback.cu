// Inclusive scan in one pass: each block publishes its sum, then looks back for the prefix (Merrill and Garland).
#include "evo.cuh"

extern "C" __global__ void scan(const int* x, int* y, unsigned long long* status, unsigned* ticket, int n) {
    __shared__ int warps[8], before;
    __shared__ unsigned block;
    if (threadIdx.x == 0) block = atomicAdd(ticket, 1u);
    __syncthreads();
    const int at = block * 256 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int v = at < n ? x[at] : 0;
    for (int i = 1; i < 32; i *= 2) {
        const int other = __shfl_up_sync(~0u, v, i);
        if (lane >= i) v += other;
    }
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    if (threadIdx.x < 8) {
        int sum = warps[threadIdx.x];
        for (int i = 1; i < 8; i *= 2) {
            const int other = __shfl_up_sync(0xffu, sum, i);
            if (threadIdx.x >= i) sum += other;
        }
        warps[threadIdx.x] = sum;
    }
    __syncthreads();
    if (warp) v += warps[warp - 1];
    if (threadIdx.x == 0) {
        volatile unsigned long long* seen = status;
        const unsigned total = warps[7];
        seen[block] = (block ? 1ull : 2ull) << 32 | total;
        unsigned prefix = 0;
        for (int i = int(block) - 1; i >= 0;) {
            const unsigned long long word = seen[i];
            if (word >> 32 == 0) continue;
            prefix += unsigned(word);
            if (word >> 32 == 2) break;
            i--;
        }
        if (block) seen[block] = 2ull << 32 | (prefix + total);
        before = prefix;
    }
    __syncthreads();
    if (at < n) y[at] = v + before;
}
