// The k largest of a row, in the order they stand there: four passes of radix select, then a compaction by ballots.
__device__ unsigned key_of(float v) {  // larger floats have larger keys
    const unsigned bits = __float_as_uint(v);
    return bits ^ (int(bits) < 0 ? ~0u : 0x80000000u);
}

extern "C" __global__ void __launch_bounds__(256)
select(const float* x, float* values, int* places, int n, int k) {
    __shared__ unsigned counts[256], chosen, above, warps[8], ties[8];
    const float* row = x + blockIdx.x * n;
    unsigned prefix = 0, mask = 0, wanted = k;  // of those with this prefix, so many are wanted
    for (int shift = 24; shift >= 0; shift -= 8) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += 256) {
            const unsigned key = key_of(row[i]);
            if ((key & mask) != prefix) continue;
            const unsigned digit = key >> shift & 255, peers = __match_any_sync(__activemask(), digit);
            if (threadIdx.x % 32 == __ffs(peers) - 1) atomicAdd(counts + digit, __popc(peers));
        }
        __syncthreads();
        if (threadIdx.x < 32) {  // lane l has digits 255 - 8 l down to 248 - 8 l
            unsigned own = 0;
            for (int d = 0; d < 8; d++) own += counts[255 - 8 * threadIdx.x - d];
            unsigned before = own;
            for (int step = 1; step < 32; step *= 2) {
                const unsigned other = __shfl_up_sync(~0u, before, step);
                if (threadIdx.x >= step) before += other;
            }
            before -= own;
            if (before < wanted && before + own >= wanted)
                for (int d = 255 - 8 * threadIdx.x;; d--) {
                    if (before + counts[d] >= wanted) {
                        chosen = d, above = before;
                        break;
                    }
                    before += counts[d];
                }
        }
        __syncthreads();
        prefix |= chosen << shift, mask |= 255u << shift, wanted -= above;
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned kept = 0, tied = 0;
    for (int start = 0; start < n; start += 256) {
        const int i = start + threadIdx.x;
        const unsigned key = i < n ? key_of(row[i]) : 0;
        const unsigned larger = __ballot_sync(~0u, i < n && key > prefix);
        const unsigned equal = __ballot_sync(~0u, i < n && key == prefix);
        if (lane == 0) warps[warp] = __popc(larger), ties[warp] = __popc(equal);
        __syncthreads();
        unsigned l = kept, t = tied;
        for (int w = 0; w < 8; w++) {
            if (w < warp) l += warps[w], t += ties[w];
            kept += warps[w], tied += ties[w];
        }
        const unsigned below = (1u << lane) - 1;
        l += __popc(larger & below), t += __popc(equal & below);
        const bool take = i < n && (key > prefix || (key == prefix && t < wanted));
        if (take) {
            const unsigned to = l + min(t, wanted);
            values[blockIdx.x * k + to] = row[i];
            places[blockIdx.x * k + to] = i;
        }
        __syncthreads();
    }
}
