// Radix-2 FFT of 256 points per block in shared memory, twiddles by sincospif, bit reversal by brev.
extern "C" __global__ void fft(const float2* x, float2* y) {
    __shared__ float2 s[256];
    const int t = threadIdx.x;
    x += blockIdx.x * 256;
    y += blockIdx.x * 256;
    s[__brev(t) >> 24] = x[t];
    s[__brev(t + 128) >> 24] = x[t + 128];
    for (int half = 1; half < 256; half *= 2) {
        __syncthreads();
        const int j = t % half, low = t / half * 2 * half + j;
        float sine, cosine;
        sincospif(-float(j) / half, &sine, &cosine);
        const float2 a = s[low], b = s[low + half];
        const float2 w = make_float2(b.x * cosine - b.y * sine, b.x * sine + b.y * cosine);
        s[low] = make_float2(a.x + w.x, a.y + w.y);
        s[low + half] = make_float2(a.x - w.x, a.y - w.y);
    }
    __syncthreads();
    y[t] = s[t];
    y[t + 128] = s[t + 128];
}
