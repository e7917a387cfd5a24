// cuda::pipeline of two stages over memcpy_async, as the C++ library offers it.
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;

extern "C" __global__ void reverse_sum(const float* x, float* y, int tiles) {
    __shared__ alignas(16) float stage[2][128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    x += blockIdx.x * tiles * 128;
    float sum = 0;
    auto load = [&](int i) {
        pipe.producer_acquire();
        cuda::memcpy_async(block, stage[i % 2], x + i * 128, cuda::aligned_size_t<16>(512), pipe);
        pipe.producer_commit();
    };
    load(0);
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) load(i + 1);
        pipe.consumer_wait();
        sum += stage[i % 2][127 - threadIdx.x];
        pipe.consumer_release();
    }
    y[blockIdx.x * 128 + threadIdx.x] = sum;
}
