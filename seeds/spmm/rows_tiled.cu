/*---
about       = "SpMM of whole rows: the kept ones times X in tiles, TM x TN sums per thread; the others get no work"
format      = "rows"
layouts     = ["row"]
constraints = [
    "BM % (4 * TM) == 0 and BN % (4 * TN) == 0",
    "(BM // TM) * (BN // TN) % 32 == 0 and (BM // TM) * (BN // TN) <= 1024",
    "8 * BK * (BM + BN + 8) <= 98304",
]

[[launch]]
kernel = "spmm"
grid   = ["cdiv(M, BM) * cdiv(N, BN)"]
block  = ["(BM // TM) * (BN // TN)"]
shared = "8 * BK * (BM + BN + 8)"
args   = ["W.values", "W.row_order", "W.kept", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
BM    = { values = [16, 32, 64, 128], default = 64 }
BN    = { values = [16, 32, 64, 128], default = 64 }
BK    = { values = [8, 16, 32],       default = 16 }
TM    = { values = [4, 8],            default = 4 }  # a thread's rows, in groups of four neighbours
TN    = { values = [4, 8],            default = 4 }
---*/
#include "task.cuh"
#include "tiles.cuh"

using evo::in_t;
using evo::out_t;
using Tiles = evo::Tiles<BM, BN, BK, TM, TN>;

extern "C" __global__ void __launch_bounds__(Tiles::THREADS)
spmm(const in_t* values, const int* row_order, int kept, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    const int tiles_m = evo::cdiv(M, BM), row0 = blockIdx.x % tiles_m * BM, n0 = blockIdx.x / tiles_m * BN;
    float acc[TM][TN] = {};
    if (row0 < kept)
        Tiles::multiply(acc, values, row0, kept, K, K % Tiles::WTile::WIDTH == 0, x, n0, N, ldx,
                        [K](int k) { return k < K ? k : -1; });
    if (row0 < kept && row0 + BM > kept) {  // empty rows of a mixed tile: 0, whatever X holds
        const int row = row0 + threadIdx.x % (BM / TM) * 4;
#pragma unroll
        for (int i = 0; i < TM; ++i)
            if (row + i / 4 * 4 * (BM / TM) + i % 4 >= kept)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = 0.0f;
    }
    Tiles::store_sums(acc, y, evo::Epilogue{bias, residual, scale}, row0, n0, N, ldy,
                      [row_order, M](int row) { return row < M ? __ldg(row_order + row) : -1; });
}
