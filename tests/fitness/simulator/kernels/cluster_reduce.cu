// Sum of a long row by a cluster: every block reduces a part, partial sums meet in the shared memory of rank 0.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) total(const float* x, float* y, int n) {
    __shared__ float parts[4], warps[8];
    auto cluster = cg::this_cluster();
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    const unsigned rank = cluster.block_rank();
    const float* row = x + blockIdx.y * n;
    float sum = 0;
    for (int i = rank * block.size() + block.thread_rank(); i < n; i += cluster.num_threads()) sum += row[i];
    sum = cg::reduce(warp, sum, cg::plus<float>());
    if (warp.thread_rank() == 0) warps[warp.meta_group_rank()] = sum;
    block.sync();
    if (warp.meta_group_rank() == 0) {
        sum = warp.thread_rank() < 8 ? warps[warp.thread_rank()] : 0;
        sum = cg::reduce(warp, sum, cg::plus<float>());
        if (warp.thread_rank() == 0) *cluster.map_shared_rank(parts + rank, 0) = sum;
    }
    cluster.sync();
    if (rank == 0 && block.thread_rank() == 0) y[blockIdx.y] = parts[0] + parts[1] + parts[2] + parts[3];
}
