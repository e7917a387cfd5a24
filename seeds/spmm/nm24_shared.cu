/*---
about       = "2:4 SpMM with tiles of W and X staged in shared memory, TM x TN outputs per thread, fp32 FMA"
format      = { name = "nm24", values = "row" }
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
require     = ["K % 64 == 0"]
constraints = [
    "BM % TM == 0 and BN % TN == 0",
    "(BM // TM) * (BN // TN) >= 32 and (BM // TM) * (BN // TN) <= 1024",
    "BM * (BK + 4) + BN * (2 * BK + 4) + 4 * BM * (BK // 16) <= 98304",
]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, BM) * cdiv(N, BN)"]
block  = ["(BM // TM) * (BN // TN)"]
shared = "BM * (BK + 4) + BN * (2 * BK + 4) + 4 * BM * (BK // 16)"
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
BM = { values = [16, 32, 64, 128], default = 64 }
BN = { values = [4, 8, 16, 32, 64], default = 32 }
BK = { values = [64, 128, 256],    default = 64 }
TM = { values = [1, 2, 4, 8],      default = 4 }
TN = { values = [1, 2, 4, 8],      default = 2 }
---*/
#include "evo.cuh"

// Row strides in halves: one bank beyond a multiple of 32 banks, so that neighbouring rows start in different banks.
constexpr int W_STRIDE = BK / 2 + 2, X_STRIDE = BK + 2;
constexpr int THREADS = BM / TM * (BN / TN);

extern "C" __global__ void __launch_bounds__(THREADS)
spmm(const __half* values, const uint32_t* meta, const __half* x, __half* y, int M, int N, int K, int64_t ldx,
     int64_t ldy) {
    extern __shared__ __align__(16) unsigned char shared[];
    __half* w_tile = reinterpret_cast<__half*>(shared);
    __half* x_tile = w_tile + BM * W_STRIDE;
    uint32_t* e_tile = reinterpret_cast<uint32_t*>(x_tile + BN * X_STRIDE);

    const int tiles_m = evo::cdiv(M, BM), thread = threadIdx.x;
    const int m0 = blockIdx.x % tiles_m * BM, n0 = blockIdx.x / tiles_m * BN;
    // Threads of a warp take neighbouring rows; a thread's own rows are BM / TM apart.
    const int row = thread % (BM / TM), column = thread / (BM / TM);
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int c = thread; c < BM * BK / 4; c += THREADS) {
            const int r = c / (BK / 4), k = k0 + c % (BK / 4) * 4;
            const bool inside = m0 + r < M && k < K;
            const __half* source = values + int64_t(m0 + r) * (K / 2) + k / 2;
            const uint32_t pair = inside ? *reinterpret_cast<const uint32_t*>(source) : 0;
            *reinterpret_cast<uint32_t*>(w_tile + r * W_STRIDE + c % (BK / 4) * 2) = pair;
        }
        for (int c = thread; c < BM * BK / 16; c += THREADS) {
            const int r = c / (BK / 16), m = m0 + r, k = k0 + c % (BK / 16) * 16;
            const bool inside = m < M && k < K;
            const int64_t word = (int64_t(m / 16) * (K / 64) + k / 64) * 32 + m % 8 * 4 + k / 16 % 4;
            e_tile[r * (BK / 16) + c % (BK / 16)] = inside ? meta[word] >> (m / 8 % 2 * 16) : 0;
        }
        for (int c = thread; c < BN * BK / 2; c += THREADS) {
            const int r = c / (BK / 2), k = k0 + c % (BK / 2) * 2;
            const bool inside = n0 + r < N && k < K;
            const uint32_t pair = inside ? *reinterpret_cast<const uint32_t*>(x + (n0 + r) * ldx + k) : 0;
            *reinterpret_cast<uint32_t*>(x_tile + r * X_STRIDE + c % (BK / 2) * 2) = pair;
        }
        __syncthreads();
        for (int k = 0; k < BK; k += 16) {
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                const int r = row + i * (BM / TM);
                const uint32_t e = e_tile[r * (BK / 16) + k / 16];
#pragma unroll
                for (int g = 0; g < 4; ++g) {
                    const __half* stored = w_tile + r * W_STRIDE + k / 2 + g * 2;
                    const float2 w = __half22float2(*reinterpret_cast<const __half2*>(stored));
                    const int first = k + g * 4 + (e >> (g * 4) & 3), second = k + g * 4 + (e >> (g * 4 + 2) & 3);
#pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        const __half* x_row = x_tile + (column + j * (BN / TN)) * X_STRIDE;
                        acc[i][j] += w.x * __half2float(x_row[first]) + w.y * __half2float(x_row[second]);
                    }
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int m = m0 + row + i * (BM / TM), n = n0 + column + j * (BN / TN);
            if (m < M && n < N) y[n * ldy + m] = __float2half_rn(acc[i][j]);
        }
}
