/*---
about       = "Blocked-ELL SpMM, minimal: one thread per output walks the blocks of its block row up to the padding"
format      = { name = "blocked_ell", r = "R", c = "C", order = "row" }
constraints = ["BM * BN <= 1024", "BM * BN >= 32"]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(N, BN) * cdiv(M, BM)"]
block  = ["BN", "BM"]
args   = ["W.values", "W.indices", "W.width", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
R  = { values = [4, 8, 16, 32, 64],    default = 32 }  # the format's block
C  = { values = [4, 8, 16, 32, 64],    default = 32 }
BM = { values = [1, 2, 4, 8, 16],      default = 4 }
BN = { values = [8, 16, 32, 64, 128],  default = 32 }
---*/
#include "task.cuh"

using evo::in_t;
using evo::out_t;

extern "C" __global__ void __launch_bounds__(BM* BN)
spmm(const in_t* values, const int* indices, int width, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    const int across = evo::cdiv(N, BN);
    const int n = blockIdx.x % across * BN + threadIdx.x, m = blockIdx.x / across * BM + threadIdx.y;
    if (m >= M || n >= N) return;

    float sum = 0.0f;
    for (int b = m / R * width; b < (m / R + 1) * width; ++b) {
        if (indices[b] < 0) break;  // padding is no block of W
        const in_t* w = values + (int64_t(b) * R + m % R) * C;
        const int k0 = indices[b] * C, count = min(C, K - k0);
#pragma unroll 4
        for (int k = 0; k < count; ++k)
            sum = fmaf(evo::to_float(w[k]), evo::to_float(x[evo::x_index(k0 + k, n, ldx)]), sum);
    }
    const int64_t at = evo::y_index(m, n, ldy);
    y[at] = evo::Epilogue{bias, residual, scale}(sum, m, at);
}
