// Flash attention on tensor cores: a warp holds 16 queries; scores stay in registers and become the A operand.
#include "evo.cuh"
using namespace evo;
constexpr int D = 64, TILE = 32;

__device__ uint32_t pack(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
}

extern "C" __global__ void __launch_bounds__(64)
attention(const __half* q, const __half* k, const __half* v, __half* o, int n, float scale) {
    __shared__ alignas(16) __half keys[TILE][D + 8], values[TILE][D + 8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
    const int first = blockIdx.x * 32 + warp * 16;
    uint32_t query[D / 16][4];
    for (int c = 0; c < D / 16; c++)
        for (int r = 0; r < 4; r++)
            query[c][r] = *reinterpret_cast<const uint32_t*>(q + (first + group + r % 2 * 8) * D + c * 16 + pair + r / 2 * 8);
    float out[D / 8][4] = {}, top[2] = {-INFINITY, -INFINITY}, total[2] = {};
    for (int start = 0; start < n; start += TILE) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * D / 8; i += 64) {
            cp_async16(&keys[i / (D / 8)][i % (D / 8) * 8], k + start * D + 8 * i);
            cp_async16(&values[i / (D / 8)][i % (D / 8) * 8], v + start * D + 8 * i);
        }
        cp_async_commit();
        cp_async_wait<0>();
        __syncthreads();
        float score[TILE / 8][4] = {};
        for (int t = 0; t < TILE / 8; t++)
            for (int c = 0; c < D / 16; c += 2) {
                uint32_t b[4];
                ldmatrix_x4(b, &keys[t * 8 + lane % 8][c * 16 + lane / 8 * 8]);
                mma_m16n8k16(score[t], query[c], b[0], b[1]);
                mma_m16n8k16(score[t], query[c + 1], b[2], b[3]);
            }
        for (int half = 0; half < 2; half++) {
            float most = top[half];
            for (int t = 0; t < TILE / 8; t++)
                for (int j = 0; j < 2; j++) most = fmaxf(most, score[t][2 * half + j] *= scale);
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
            most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
            const float shrink = __expf(top[half] - most);
            float sum = 0;
            for (int t = 0; t < TILE / 8; t++)
                for (int j = 0; j < 2; j++) sum += score[t][2 * half + j] = __expf(score[t][2 * half + j] - most);
            total[half] = total[half] * shrink + sum;
            for (int c = 0; c < D / 8; c++)
                for (int j = 0; j < 2; j++) out[c][2 * half + j] *= shrink;
            top[half] = most;
        }
        for (int t = 0; t < TILE / 16; t++) {
            const uint32_t a[4] = {pack(score[2 * t][0], score[2 * t][1]), pack(score[2 * t][2], score[2 * t][3]),
                                   pack(score[2 * t + 1][0], score[2 * t + 1][1]),
                                   pack(score[2 * t + 1][2], score[2 * t + 1][3])};
            for (int c = 0; c < D / 16; c++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, &values[t * 16 + lane % 16][c * 16 + lane / 16 * 8]);
                mma_m16n8k16(out[2 * c], a, b[0], b[1]);
                mma_m16n8k16(out[2 * c + 1], a, b[2], b[3]);
            }
        }
    }
    for (int half = 0; half < 2; half++) {
        float sum = total[half];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        for (int c = 0; c < D / 8; c++)
            *reinterpret_cast<uint32_t*>(o + (first + group + half * 8) * D + c * 8 + pair) =
                pack(out[c][2 * half] / sum, out[c][2 * half + 1] / sum);
    }
}
