/*---
about       = "2:4 SpMM with 16-byte loads: a warp takes one row of W and COLS columns of X, lanes share K"
format      = { name = "nm24", values = "row" }
dtypes      = ["float16"]
out_dtypes  = ["float16"]
layouts     = ["col"]
require     = ["K % 64 == 0"]
constraints = []

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, WARPS) * cdiv(N, COLS)"]
block  = ["32 * WARPS"]
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy"]

[params]
WARPS  = { values = [1, 2, 4, 8, 16], default = 4 }
COLS   = { values = [1, 2, 4, 8, 16], default = 4 }
UNROLL = { values = [1, 2, 4, 8],     default = 1 }
---*/
#include "evo.cuh"

// The two values of X that a group of four keeps: `group` holds four neighbours, `indices` two 2-bit positions.
__device__ __forceinline__ float2 pick(uint2 group, uint32_t indices) {
    const uint32_t first = (indices & 3) * 0x22 + 0x10, second = (indices >> 2 & 3) * 0x22 + 0x10;
    const uint32_t pair = __byte_perm(group.x, group.y, first | second << 8);
    return __half22float2(reinterpret_cast<const __half2&>(pair));
}

__device__ __forceinline__ float dot_group(uint32_t weights, uint2 group, uint32_t indices, float sum) {
    const float2 w = __half22float2(reinterpret_cast<const __half2&>(weights));
    const float2 v = pick(group, indices);
    return fmaf(w.y, v.y, fmaf(w.x, v.x, sum));
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
spmm(const __half* values, const uint32_t* meta, const __half* x, __half* y, int M, int N, int K, int64_t ldx,
     int64_t ldy) {
    const int tiles_m = evo::cdiv(M, WARPS), lane = threadIdx.x % 32;
    const int m = blockIdx.x % tiles_m * WARPS + threadIdx.x / 32, n0 = blockIdx.x / tiles_m * COLS;
    if (m >= M) return;

    const uint4* w_row = reinterpret_cast<const uint4*>(values + int64_t(m) * (K / 2));
    const uint32_t* words = meta + int64_t(m / 16) * (K / 64) * 32 + m % 8 * 4;
    float sum[COLS] = {};
#pragma unroll UNROLL
    for (int chunk = lane; chunk < K / 16; chunk += 32) {
        const uint4 w = w_row[chunk];
        const uint32_t e = words[chunk / 4 * 32 + chunk % 4] >> (m / 8 % 2 * 16);
#pragma unroll
        for (int c = 0; c < COLS; ++c) {
            if (n0 + c >= N) break;
            const uint4* column = reinterpret_cast<const uint4*>(x + (n0 + c) * ldx + chunk * 16);
            const uint4 low = column[0], high = column[1];
            sum[c] = dot_group(w.x, make_uint2(low.x, low.y), e, sum[c]);
            sum[c] = dot_group(w.y, make_uint2(low.z, low.w), e >> 4, sum[c]);
            sum[c] = dot_group(w.z, make_uint2(high.x, high.y), e >> 8, sum[c]);
            sum[c] = dot_group(w.w, make_uint2(high.z, high.w), e >> 12, sum[c]);
        }
    }
#pragma unroll
    for (int c = 0; c < COLS; ++c) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum[c] += __shfl_xor_sync(0xffffffff, sum[c], offset);
        if (lane == 0 && n0 + c < N) y[(n0 + c) * ldy + m] = __float2half_rn(sum[c]);
    }
}
