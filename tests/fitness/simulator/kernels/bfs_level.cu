// One level of breadth-first search: claims vertices by compare-and-swap, warps append to the queue together.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void begin(int* distance, int* count) {
    if (threadIdx.x < 200) distance[threadIdx.x] = -1;
    if (threadIdx.x == 0) *count = 0;
}

extern "C" __global__ void level(const int* offsets, const int* targets, const int* frontier, int size, int* distance,
                                 int* next, int* count, int depth) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const int from = frontier[i];
    for (int e = offsets[from]; e < offsets[from + 1]; e++) {
        const int to = targets[e];
        if (atomicCAS(distance + to, -1, depth) != -1) continue;
        auto here = cg::coalesced_threads();
        int base = 0;
        if (here.thread_rank() == 0) base = atomicAdd(count, here.size());
        next[here.shfl(base, 0) + here.thread_rank()] = to;
    }
}
