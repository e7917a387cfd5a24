/*---
about       = "Periodic SpMM: rows equal modulo the period share columns, a dense product with gathered rows of X"
format      = { name = "periodic", rows = "R", columns = "C" }
layouts     = ["row"]
constraints = [
    "BM % (4 * TM) == 0 and BN % (4 * TN) == 0",
    "(BM // TM) * (BN // TN) % 32 == 0 and (BM // TM) * (BN // TN) <= 1024",
    "8 * BK * (BM + BN + 8) <= 98304",
]

[[launch]]
kernel = "spmm"
grid   = ["min(R, M) * cdiv(cdiv(M, R), BM) * cdiv(N, BN)"]
block  = ["(BM // TM) * (BN // TN)"]
shared = "8 * BK * (BM + BN + 8)"
args   = ["W.values", "W.indices", "W.indptr", "X", "Y", "bias", "residual", "scale", "M", "N", "K", "ldx", "ldy"]

[params]
R     = { values = [1, 2, 4, 8, 16, 32, 64],    default = 8 }   # the period along M
C     = { values = [8, 16, 32, 64, 128, 256],  default = 32 }  # and along K
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
spmm(const in_t* values, const int* indices, const int* indptr, const in_t* x, out_t* y, const in_t* bias,
     const out_t* residual, float scale, int M, int N, int K, int64_t ldx, int64_t ldy) {
    // Tiles of the same rows of the pattern follow one another: they gather the same rows of X.
    const int periods = evo::cdiv(M, R), across = evo::cdiv(K, C), tiles_m = evo::cdiv(periods, BM);
    const int tile = blockIdx.x % tiles_m, g = blockIdx.x / tiles_m % min(R, M);
    const int row0 = tile * BM, n0 = blockIdx.x / tiles_m / min(R, M) * BN;
    const int begin = __ldg(indptr + g), count = __ldg(indptr + g + 1) - begin, columns = across * count;
    const int* own = indices + begin;
    const int64_t first = int64_t(begin) * periods * across;

    float acc[TM][TN] = {};
    const bool aligned = columns % Tiles::WTile::WIDTH == 0 && first % Tiles::WTile::WIDTH == 0;
    Tiles::multiply(acc, values + first, row0, periods, columns, aligned, x, n0, N, ldx,
                    [own, count, columns, K](int slot) {
                        const int k = slot < columns ? slot / count * C + __ldg(own + slot % count) : K;
                        return k < K ? k : -1;
                    });
    Tiles::store_sums(acc, y, evo::Epilogue{bias, residual, scale}, row0, n0, N, ldy, [g, M](int row) {
        const int m = row * R + g;
        return m < M ? m : -1;
    });
}
