// One stable pass of a radix sort on four bits: ballots give ranks within warps, a scan those among digits and warps.
extern "C" __global__ void __launch_bounds__(128) pass(const unsigned* x, unsigned* y, int shift) {
    __shared__ unsigned counts[16][5];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const unsigned key = x[blockIdx.x * 128 + t], digit = key >> shift & 15;
    unsigned peers = ~0u;
    for (int b = 0; b < 4; b++) {
        const unsigned vote = __ballot_sync(~0u, digit >> b & 1);
        peers &= digit >> b & 1 ? vote : ~vote;
    }
    for (int i = t; i < 16 * 5; i += 128) (&counts[0][0])[i] = 0;
    __syncthreads();
    const unsigned below = __popc(peers & ((1u << lane) - 1));
    if (below == 0) counts[digit][warp] = __popc(peers);
    __syncthreads();
    if (t == 0) {
        unsigned sum = 0;
        for (int d = 0; d < 16; d++)
            for (int w = 0; w < 4; w++) {
                const unsigned c = counts[d][w];
                counts[d][w] = sum;
                sum += c;
            }
    }
    __syncthreads();
    y[blockIdx.x * 128 + counts[digit][warp] + below] = key;
}
