// Histogram of bytes: lanes with the same bin elect one adder (match), bins in shared memory, then in global memory.
extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, int n) {
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    const uchar4* quads = reinterpret_cast<const uchar4*>(x);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x) {
        const uchar4 q = quads[i];
        const unsigned char all[4] = {q.x, q.y, q.z, q.w};
        for (unsigned char bin : all) {
            const unsigned peers = __match_any_sync(__activemask(), bin);
            if (__ffs(peers) - 1 == threadIdx.x % 32) atomicAdd(own + bin, __popc(peers));
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (own[i]) atomicAdd(bins + i, own[i]);
}
