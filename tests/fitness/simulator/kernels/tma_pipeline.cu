// A ring of tensor-map loads: one thread copies boxes, eight warps add rows; results leave by a tensor-map store.
#include "evo.cuh"
using namespace evo;
constexpr int STAGES = 3, ROWS = 16, COLUMNS = 64;

extern "C" __global__ void __launch_bounds__(288)
combine(const __grid_constant__ TensorMap in, const __grid_constant__ TensorMap out, int tiles) {
    __shared__ alignas(128) float stage[STAGES][ROWS][COLUMNS], result[ROWS][COLUMNS];
    __shared__ alignas(8) uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], 8);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        if (threadIdx.x == 256) {
            prefetch_tensormap(&in);
            for (int i = 0; i < tiles; i++) {
                const int s = i % STAGES;
                mbarrier_wait(&empty[s], (i / STAGES & 1) ^ 1);
                mbarrier_arrive_expect_tx(&full[s], sizeof stage[s]);
                tensor_load(stage[s], &in, i * COLUMNS, blockIdx.x * ROWS, &full[s]);
            }
        }
        return;
    }
    float sum[ROWS * COLUMNS / 256] = {};
    for (int i = 0; i < tiles; i++) {
        const int s = i % STAGES;
        mbarrier_wait(&full[s], i / STAGES & 1);
        for (int j = 0; j < 4; j++) sum[j] += stage[s][4 * j + threadIdx.x / 64][threadIdx.x % 64];
        __syncwarp();
        if (threadIdx.x % 32 == 0) mbarrier_arrive(&empty[s]);
    }
    for (int j = 0; j < 4; j++) result[4 * j + threadIdx.x / 64][threadIdx.x % 64] = sum[j];
    fence_proxy_async();
    named_barrier(1, 256);
    if (threadIdx.x == 0) {
        tensor_store(&out, 0, blockIdx.x * ROWS, result);
        bulk_commit();
        bulk_wait<0>();
    }
}
