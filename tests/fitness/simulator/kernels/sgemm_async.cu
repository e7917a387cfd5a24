// SGEMM with 64 x 64 tiles, 4 x 4 sums per thread, three stages of cp.async.
#include "evo.cuh"
using namespace evo;
constexpr int T = 64, KT = 8, STAGES = 3;

extern "C" __global__ void __launch_bounds__(256)
sgemm(const float* a, const float* b, float* c, int m, int n, int k) {  // a: k x m, b: k x n
    __shared__ alignas(16) float as[STAGES][KT][T], bs[STAGES][KT][T];
    const int t = threadIdx.x, tm = blockIdx.y * T, tn = blockIdx.x * T, row = t / 16 * 4, column = t % 16 * 4;
    auto load = [&](int step) {
        if (step < k / KT) {
            const int s = step % STAGES, i = t % 128 / 16, j = t % 16 * 4;
            if (t < 128) cp_async16(&as[s][i][j], a + (step * KT + i) * m + tm + j);
            else cp_async16(&bs[s][i][j], b + (step * KT + i) * n + tn + j);
        }
        cp_async_commit();
    };
    float sum[4][4] = {};
    for (int s = 0; s < STAGES - 1; s++) load(s);
    for (int step = 0; step < k / KT; step++) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        load(step + STAGES - 1);
        const int s = step % STAGES;
        for (int kk = 0; kk < KT; kk++) {
            const float4 av = *reinterpret_cast<float4*>(&as[s][kk][row]), bv = *reinterpret_cast<float4*>(&bs[s][kk][column]);
            const float ar[4] = {av.x, av.y, av.z, av.w}, br[4] = {bv.x, bv.y, bv.z, bv.w};
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] = fmaf(ar[i], br[j], sum[i][j]);
        }
    }
    for (int i = 0; i < 4; i++)
        *reinterpret_cast<float4*>(c + (tm + row + i) * n + tn + column) =
            make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
}
