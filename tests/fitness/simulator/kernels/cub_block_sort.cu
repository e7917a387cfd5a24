// CUB in device code: a block-wide radix sort and an inclusive scan.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>

extern "C" __global__ void __launch_bounds__(64) sort_and_scan(const unsigned* x, unsigned* sorted, unsigned* sums) {
    using Sort = cub::BlockRadixSort<unsigned, 64, 4>;
    using Scan = cub::BlockScan<unsigned, 64>;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Scan::TempStorage scan;
    } storage;
    unsigned items[4];
    const int at = blockIdx.x * 256 + threadIdx.x * 4;
    for (int i = 0; i < 4; i++) items[i] = x[at + i];
    Sort(storage.sort).Sort(items, 0, 16);
    for (int i = 0; i < 4; i++) sorted[at + i] = items[i];
    __syncthreads();
    Scan(storage.scan).InclusiveSum(items, items);
    for (int i = 0; i < 4; i++) sums[at + i] = items[i];
}
