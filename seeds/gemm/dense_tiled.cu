/*---
about       = "Dense GEMM with tiles of W and X staged in shared memory, TM x TN outputs per thread, fp32 FMA"
format      = "dense"
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
constraints = [
    "BM % TM == 0 and BN % TN == 0",
    "(BM // TM) * (BN // TN) >= 32 and (BM // TM) * (BN // TN) <= 1024",
    "(BM + BN) * (2 * BK + 4) <= 98304",
]

[[launch]]
kernel = "gemm"
grid   = ["cdiv(M, BM) * cdiv(N, BN)"]
block  = ["(BM // TM) * (BN // TN)"]
shared = "(BM + BN) * (2 * BK + 4)"
args   = ["W.values", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
BM = { values = [16, 32, 64, 128],  default = 64 }
BN = { values = [4, 8, 16, 32, 64], default = 32 }
BK = { values = [16, 32, 64, 128],  default = 32 }
TM = { values = [1, 2, 4, 8],       default = 4 }
TN = { values = [1, 2, 4, 8],       default = 2 }
---*/
#include "evo.cuh"

// Row stride in halves: one bank beyond a multiple of the row, so that neighbouring rows start in different banks.
constexpr int STRIDE = BK + 2;
constexpr int THREADS = BM / TM * (BN / TN);

// Copies rows row0.. and values k0..k0+BK-1 of a K-contiguous operand; what lies outside becomes zero.
template <int ROWS>
__device__ __forceinline__ void load_tile(__half* tile, const __half* source, int row0, int k0, int rows, int K,
                                          int64_t ld) {
    for (int c = threadIdx.x; c < ROWS * BK; c += THREADS) {
        const int r = c / BK, k = c % BK;
        const bool inside = row0 + r < rows && k0 + k < K;
        tile[r * STRIDE + k] = inside ? source[(row0 + r) * ld + k0 + k] : __half(0.0f);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const __half* values, const __half* x, __half* y, int M, int N, int K, int64_t ldx, int64_t ldy) {
    extern __shared__ __align__(16) unsigned char shared[];
    __half* w_tile = reinterpret_cast<__half*>(shared);
    __half* x_tile = w_tile + BM * STRIDE;

    const int tiles_m = evo::cdiv(M, BM), thread = threadIdx.x;
    const int m0 = blockIdx.x % tiles_m * BM, n0 = blockIdx.x / tiles_m * BN;
    // Threads of a warp take neighbouring rows; a thread's own rows are BM / TM apart.
    const int row = thread % (BM / TM), column = thread / (BM / TM);
    float acc[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        load_tile<BM>(w_tile, values, m0, k0, M, K, K);
        load_tile<BN>(x_tile, x, n0, k0, N, K, ldx);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < BK; k += 2) {
            float2 w[TM], v[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                const __half* source = w_tile + (row + i * (BM / TM)) * STRIDE + k;
                w[i] = __half22float2(*reinterpret_cast<const __half2*>(source));
            }
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                const __half* source = x_tile + (column + j * (BN / TN)) * STRIDE + k;
                v[j] = __half22float2(*reinterpret_cast<const __half2*>(source));
            }
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(w[i].y, v[j].y, fmaf(w[i].x, v[j].x, acc[i][j]));
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
