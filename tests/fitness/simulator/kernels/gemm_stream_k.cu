// Stream-K GEMM (Osama et al.): blocks take equal shares of all (tile, k) steps; who begins a tile adds the others' parts.
#include "evo.cuh"
constexpr int T = 32, KT = 16;

extern "C" __global__ void __launch_bounds__(256)
gemm(const float* a, const float* b, float* c, float* parts, int* flags, int m, int n, int k) {
    __shared__ float as[KT][T + 1], bs[KT][T];
    const int tiles_n = n / T, steps = k / KT, total = m / T * tiles_n * steps;
    const int share = evo::cdiv(total, int(gridDim.x));
    int at = blockIdx.x * share;
    const int end = min(total, at + share), t = threadIdx.x, row = t / 8, column = t % 8 * 4;
    while (at < end) {
        const int tile = at / steps, first = at % steps, last = min(steps, first + end - at);
        const int tm = tile / tiles_n * T, tn = tile % tiles_n * T;
        float sum[4] = {};
        for (int s = first; s < last; s++) {
            __syncthreads();
            for (int i = t; i < T * KT; i += 256) {
                as[i % KT][i / KT] = a[(tm + i / KT) * k + s * KT + i % KT];
                bs[i / T][i % T] = b[(s * KT + i / T) * n + tn + i % T];
            }
            __syncthreads();
            for (int kk = 0; kk < KT; kk++)
                for (int j = 0; j < 4; j++) sum[j] += as[kk][row] * bs[kk][column + j];
        }
        if (first) {  // somebody else finishes this tile
            float* mine = parts + blockIdx.x * T * T + row * T + column;
            for (int j = 0; j < 4; j++) __stcg(mine + j, sum[j]);
            __threadfence();
            __syncthreads();
            if (t == 0) atomicExch(flags + blockIdx.x, 1);
        } else {
            int reached = tile * steps + last;
            for (int other = blockIdx.x + 1; reached < (tile + 1) * steps; other++) {
                if (t == 0)
                    while (atomicAdd(flags + other, 0) == 0) {}
                __syncthreads();
                __threadfence();
                const float* its = parts + other * T * T + row * T + column;
                for (int j = 0; j < 4; j++) sum[j] += __ldcg(its + j);
                reached += min(share, (tile + 1) * steps - reached);
            }
            for (int j = 0; j < 4; j++) c[(tm + row) * n + tn + column + j] = sum[j];
        }
        at += last - first;
    }
}
