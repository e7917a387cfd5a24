// O = softmax(S) V: a block takes 16 rows of scores; tiles of V come by cp.async, one ahead of the one at work.
#include "evo.cuh"
using namespace evo;
constexpr int D = 64, TILE = 16, ROWS = 16;

extern "C" __global__ void __launch_bounds__(128)
apply(const float* scores, const __half* v, float* o, int n) {
    __shared__ alignas(16) __half tiles[2][TILE][D];
    __shared__ float weights[2][ROWS][TILE];
    const int thread = threadIdx.x, row = thread / 8, part = thread % 8;
    const float* mine = scores + (blockIdx.x * ROWS + row) * n;
    float top = -INFINITY;
    for (int i = part; i < n; i += 8) top = fmaxf(top, mine[i]);
    for (int step = 4; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    auto fetch_tile = [&](int t) {
        const int k = t * TILE + thread / 8;  // 8 chunks of 16 bytes to a row of V
        cp_async16_zfill(&tiles[t & 1][thread / 8][thread % 8 * 8], v + (k < n ? k * D + thread % 8 * 8 : 0), k < n ? 16 : 0);
        cp_async_commit();
        for (int j = part; j < TILE; j += 8) {
            const int column = t * TILE + j;
            weights[t & 1][row][j] = column < n ? __expf(mine[column] - top) : 0;
        }
    };
    const int count = (n + TILE - 1) / TILE;
    float sum[D / 8] = {}, total = 0;
    fetch_tile(0);
    for (int t = 0; t < count; t++) {
        if (t + 1 < count) fetch_tile(t + 1);
        else cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        for (int j = 0; j < TILE; j++) {
            const float w = weights[t & 1][row][j];
            total += w;
            for (int i = 0; i < D / 8; i++) sum[i] += w * __half2float(tiles[t & 1][j][8 * i + part]);
        }
        __syncthreads();
    }
    for (int i = 0; i < D / 8; i++) o[(blockIdx.x * ROWS + row) * D + 8 * i + part] = sum[i] / total;
}
