// A ring over a cluster: every block passes its row on by st.async and adds what comes, seven times (all-reduce).
#include "evo.cuh"
using namespace evo;

extern "C" __global__ void ring(const float* x, float* y) {
    __shared__ alignas(16) float slot[2][128];
    __shared__ alignas(8) uint64_t full[2], taken[2];
    const uint32_t rank = cluster_rank(), next = (rank + 1) % 8, before = (rank + 7) % 8;
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&taken[s], 128);
        }
        fence_mbarrier_init();
    }
    cluster_arrive();
    cluster_wait();
    float passed = x[blockIdx.x * 128 + threadIdx.x], sum = passed;
    for (int i = 0; i < 7; i++) {
        const int s = i % 2;
        if (threadIdx.x == 0) mbarrier_arrive_expect_tx(&full[s], 512);
        if (i >= 2) mbarrier_wait(&taken[s], (i / 2 - 1) & 1);
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                         cluster_address(&slot[s][threadIdx.x], next)),
                     "f"(passed), "r"(cluster_address(&full[s], next))
                     : "memory");
        mbarrier_wait(&full[s], i / 2 & 1);
        passed = slot[s][threadIdx.x];
        sum += passed;
        mbarrier_arrive_cluster(&taken[s], before);
    }
    y[blockIdx.x * 128 + threadIdx.x] = sum;
    cluster_arrive();
    cluster_wait();
}
