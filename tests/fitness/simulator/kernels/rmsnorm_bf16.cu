// RMS normalisation in bfloat16 pairs, eight values to a load, cooperative groups for the sum.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
namespace cg = cooperative_groups;

extern "C" __global__ void rmsnorm(const uint4* x, const __nv_bfloat162* weight, uint4* y, int octets) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int row = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    float sum = 0;
    for (int i = warp.thread_rank(); i < octets; i += warp.size()) {
        uint4 raw = x[row * octets + i];
        const __nv_bfloat162* pair = reinterpret_cast<const __nv_bfloat162*>(&raw);
        for (int j = 0; j < 4; j++) {
            const float2 f = __bfloat1622float2(pair[j]);
            sum = fmaf(f.x, f.x, fmaf(f.y, f.y, sum));
        }
    }
    sum = cg::reduce(warp, sum, cg::plus<float>());
    const __nv_bfloat162 scale = __float2bfloat162_rn(rsqrtf(sum / (8 * octets) + 1e-5f));
    for (int i = warp.thread_rank(); i < octets; i += warp.size()) {
        uint4 raw = x[row * octets + i];
        __nv_bfloat162* pair = reinterpret_cast<__nv_bfloat162*>(&raw);
        for (int j = 0; j < 4; j++) pair[j] = __hmul2(__hmul2(pair[j], scale), weight[4 * i + j]);
        y[row * octets + i] = raw;
    }
}
