// C = A B^T by clusters of two blocks down M: each loads half of every tile of B and sends it to both by multicast.
#include "evo.cuh"
using namespace evo;
constexpr int BM = 32, BN = 32, BK = 64, STAGES = 2;

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(160)
gemm(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, int N, int K) {
    __shared__ alignas(128) __half tile_a[STAGES][BM][BK], tile_b[STAGES][BN][BK];
    __shared__ alignas(8) uint64_t full[STAGES], empty[STAGES];
    const int rank = cluster_rank(), steps = K / BK, m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], 2 * 4);  // the warps of both blocks
        }
        fence_mbarrier_init();
    }
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128)
            for (int i = 0; i < steps; i++) {
                const int s = i % STAGES;
                mbarrier_wait(&empty[s], i / STAGES % 2 ^ 1);
                mbarrier_arrive_expect_tx(&full[s], sizeof tile_a[s] + sizeof tile_b[s]);
                tensor_load(tile_a[s], &a, i * BK, m0, &full[s]);
                tensor_load_multicast(tile_b[s][rank * BN / 2], &b, i * BK, n0 + rank * BN / 2, &full[s], 3);
            }
    } else {
        const int row = threadIdx.x / 4, column = threadIdx.x % 4;
        float sum[BN / 4] = {};
        for (int i = 0; i < steps; i++) {
            const int s = i % STAGES;
            mbarrier_wait(&full[s], i / STAGES % 2);
            for (int k = 0; k < BK; k++) {
                const float x = __half2float(tile_a[s][row][k]);
                for (int j = 0; j < BN / 4; j++) sum[j] += x * __half2float(tile_b[s][4 * j + column][k]);
            }
            __syncwarp();
            if (threadIdx.x % 32 < 2) mbarrier_arrive_cluster(&empty[s], threadIdx.x % 32);
        }
        for (int j = 0; j < BN / 4; j++) c[(m0 + row) * N + n0 + 4 * j + column] = sum[j];
    }
    cluster_arrive();
    cluster_wait();  // no block leaves while the other may still write into it
}
