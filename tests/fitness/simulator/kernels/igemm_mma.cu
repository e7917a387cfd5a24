// int8 GEMM on tensor cores (m16n8k32), requantised to int8 with saturation; unsigned activations.
extern "C" __global__ void gemm(const unsigned* a, const unsigned* b, signed char* c, int n, int words, float scale) {
    const int lane = threadIdx.x, group = lane / 4, part = lane % 4, row = blockIdx.y * 16, column = blockIdx.x * 8;
    int d[4] = {};
    for (int w = 0; w < words; w += 8) {
        const unsigned a0 = a[(row + group) * words + w + part], a1 = a[(row + group + 8) * words + w + part];
        const unsigned a2 = a[(row + group) * words + w + part + 4], a3 = a[(row + group + 8) * words + w + part + 4];
        const unsigned b0 = b[(column + group) * words + w + part], b1 = b[(column + group) * words + w + part + 4];
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    for (int i = 0; i < 4; i++) {
        const int q = __float2int_rn(d[i] * scale);
        c[(row + group + i / 2 * 8) * n + column + part * 2 + i % 2] = max(-128, min(127, q));
    }
}
