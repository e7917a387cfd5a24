// Warp-specialised Hopper GEMM: a producer warpgroup gives registers away and copies tiles, two consumers run wgmma.
#include "evo.cuh"
#include "wgmma.cuh"
using namespace evo;
constexpr int STAGES = 2, BN = 64;

__device__ void wgmma_64x64x16(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
                 "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
                   "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
                   "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
                   "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(384, 1)
gemm(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, float* c, int n, int k) {
    extern __shared__ __align__(1024) unsigned char ring[];
    __shared__ alignas(8) uint64_t full[STAGES], empty[STAGES];
    constexpr int a_bytes = 128 * 128, b_bytes = BN * 128, bytes = a_bytes + b_bytes;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], 2);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    const int group = threadIdx.x / 128, tm = blockIdx.x * 128, tn = blockIdx.y * BN;
    if (group == 0) {
        register_decrease<40>();
        if (threadIdx.x == 0)
            for (int i = 0; i < k / 64; i++) {
                const int s = i % STAGES;
                mbarrier_wait(&empty[s], (i / STAGES & 1) ^ 1);
                mbarrier_arrive_expect_tx(&full[s], bytes);
                tensor_load(ring + s * bytes, &a_map, i * 64, tm, &full[s]);
                tensor_load(ring + s * bytes + a_bytes, &b_map, i * 64, tn, &full[s]);
            }
        return;
    }
    register_increase<232>();
    float sum[32] = {};
    for (int i = 0; i < k / 64; i++) {
        const int s = i % STAGES;
        mbarrier_wait(&full[s], i / STAGES & 1);
        const uint64_t a = wgmma_descriptor_128b(ring + s * bytes + (group - 1) * 64 * 128);
        const uint64_t b = wgmma_descriptor_128b(ring + s * bytes + a_bytes);
        wgmma_fence();
        for (int kk = 0; kk < 4; kk++) wgmma_64x64x16(sum, a + 2 * kk, b + 2 * kk);
        wgmma_commit();
        wgmma_wait<0>();
        if (threadIdx.x % 128 == 0) mbarrier_arrive(&empty[s]);
    }
    const int row = tm + (group - 1) * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    for (int j = 0; j < 8; j++)
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2*>(c + (row + half * 8) * n + tn + 8 * j + threadIdx.x % 4 * 2) =
                make_float2(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
}
