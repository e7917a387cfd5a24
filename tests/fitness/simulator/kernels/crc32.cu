// CRC-32 of many short messages: a table made in shared memory, bytes one at a time, lengths of their own.
extern "C" __global__ void crc(const unsigned char* text, const int* offsets, unsigned* sums, int messages) {
    __shared__ unsigned table[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        unsigned v = i;
        for (int bit = 0; bit < 8; bit++) v = v & 1 ? v >> 1 ^ 0xEDB88320u : v >> 1;
        table[i] = v;
    }
    __syncthreads();
    const int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= messages) return;
    unsigned sum = ~0u;
    for (int i = offsets[m]; i < offsets[m + 1]; i++) sum = sum >> 8 ^ table[(sum ^ text[i]) & 255];
    sums[m] = ~sum;
}
