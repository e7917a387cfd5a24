/*---
about       = "Fused dense GEMM for few columns of X (decoding): streams W once, warps reduce along K by shuffles"
format      = "dense"
constraints = [
    "ROWS * NB <= 64",
    "NB * (BK + 8) * 4 <= 49152",
]

[[launch]]
kernel = "gemm"
grid   = ["cdiv(M, ROWS * WARPS) * cdiv(N, NB)"]
block  = ["32 * WARPS"]
shared = "NB * (BK + 8) * 4"
args   = ["W.values", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
ROWS  = { values = [1, 2, 4, 8],           default = 2 }   # rows of W that one warp takes
WARPS = { values = [2, 4, 8],              default = 4 }
NB    = { values = [1, 2, 4, 8, 16],       default = 8 }   # columns of X that one block takes
BK    = { values = [256, 512, 1024, 2048], default = 512 }  # values of k of X staged at a time
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

constexpr int THREADS = 32 * WARPS;
constexpr int VECTOR = 16 / sizeof(in_t);  // values of k in one 16-byte load of W
constexpr int STRIDE = BK + 8;             // floats between columns of the X tile

// X[k0.. , n0..] -> float[NB][STRIDE]; what lies outside becomes zero.
__device__ __forceinline__ void stage_x(float* tile, const in_t* x, int n0, int k0, int N, int K, int64_t ldx) {
    if (!evo::X_ROW && ldx % VECTOR == 0 && k0 + BK <= K) {
        for (int i = threadIdx.x; i < NB * (BK / VECTOR); i += THREADS) {
            const int n = i / (BK / VECTOR), k = i % (BK / VECTOR) * VECTOR;
            float items[VECTOR] = {};
            if (n0 + n < N) evo::load_floats(items, x + int64_t(n0 + n) * ldx + k0 + k);
            evo::store_items(tile + n * STRIDE + k, items);
        }
        return;
    }
    for (int i = threadIdx.x; i < NB * BK; i += THREADS) {
        const int n = evo::X_ROW ? i % NB : i / BK, k = evo::X_ROW ? i / NB : i % BK;
        const bool inside = n0 + n < N && k0 + k < K;
        tile[n * STRIDE + k] = inside ? evo::to_float(x[evo::x_index(k0 + k, n0 + n, ldx)]) : 0.0f;
    }
}

// Adds up over the 32 lanes; every lane gets the sum.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const in_t* values, const in_t* x, out_t* y, const in_t* bias, const out_t* residual, float scale, int M, int N,
     int K, int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(16) float x_tile[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int tiles_m = evo::cdiv(M, ROWS * WARPS);  // on x with the columns: a grid has only 65,535 blocks along y
    const int m0 = (blockIdx.x % tiles_m * WARPS + warp) * ROWS, n0 = blockIdx.x / tiles_m * NB;
    const bool aligned = K % VECTOR == 0;

    float acc[ROWS][NB] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        __syncthreads();
        stage_x(x_tile, x, n0, k0, N, K, ldx);
        __syncthreads();
#pragma unroll 2
        for (int k = lane * VECTOR; k < BK; k += 32 * VECTOR) {
            if (k0 + k >= K) break;
            evo::Vector<in_t, VECTOR> w[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const in_t* from = values + int64_t(min(m0 + r, M - 1)) * K + k0 + k;
                if (aligned) {
                    w[r] = evo::load_readonly<VECTOR>(from);
                } else {
#pragma unroll
                    for (int j = 0; j < VECTOR; ++j)
                        w[r].items[j] = k0 + k + j < K ? from[j] : evo::from_float<in_t>(0.0f);
                }
            }
#pragma unroll
            for (int n = 0; n < NB; ++n) {
#pragma unroll
                for (int j = 0; j < VECTOR; j += 4) {
                    const float4 v = *reinterpret_cast<const float4*>(x_tile + n * STRIDE + k + j);
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        float& sum = acc[r][n];
                        sum = fmaf(evo::to_float(w[r].items[j]), v.x, sum);
                        sum = fmaf(evo::to_float(w[r].items[j + 1]), v.y, sum);
                        sum = fmaf(evo::to_float(w[r].items[j + 2]), v.z, sum);
                        sum = fmaf(evo::to_float(w[r].items[j + 3]), v.w, sum);
                    }
                }
            }
        }
    }

    const evo::Epilogue epilogue{bias, residual, scale};
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int n = 0; n < NB; ++n) {
            const float sum = warp_sum(acc[r][n]);
            if (lane == (r * NB + n) % 32 && m0 + r < M && n0 + n < N) {
                const int64_t at = evo::y_index(m0 + r, n0 + n, ldy);
                y[at] = epilogue(sum, m0 + r, at);
            }
        }
}
