// Sums by label within warps: labelled groups of threads reduce, their leaders add to the totals.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void sums(const int* labels, const int* values, int* totals, int* sizes, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int label = i < n ? labels[i] : -1;
    auto group = cg::labeled_partition(warp, label);
    const int sum = cg::reduce(group, i < n ? values[i] : 0, cg::plus<int>());
    if (group.thread_rank() == 0 && label >= 0) {
        atomicAdd(totals + label, sum);
        atomicMax(sizes + label, int(group.num_threads()));
    }
}
