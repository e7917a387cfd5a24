/*---
about       = "SpMM of whole columns: a dense product in tiles with the rows of X that are kept"
format      = "channels"
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
args   = ["W.values", "W.indices", "W.kept", "X", "Y", "bias", "residual", "scale", "M", "N", "ldx", "ldy"]

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
spmm(const in_t* values, const int* indices, int kept, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int64_t ldx, int64_t ldy) {
    const int tiles_m = evo::cdiv(M, BM), row0 = blockIdx.x % tiles_m * BM, n0 = blockIdx.x / tiles_m * BN;
    float acc[TM][TN] = {};
    Tiles::multiply(acc, values, row0, M, kept, kept % Tiles::WTile::WIDTH == 0, x, n0, N, ldx,
                    [indices, kept](int slot) { return slot < kept ? __ldg(indices + slot) : -1; });
    Tiles::store_sums(acc, y, evo::Epilogue{bias, residual, scale}, row0, n0, N, ldy,
                      [M](int row) { return row < M ? row : -1; });
}
