// fp32 GEMM by three TF32 products (big and small parts), which keeps about fp32's accuracy.
#include "evo.cuh"

__device__ void split(float v, uint32_t& big, uint32_t& small) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(big) : "f"(v));
    const float rest = v - __uint_as_float(big);
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(small) : "f"(rest));
}

__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int n, int k) {
    const int lane = threadIdx.x, group = lane / 4, part = lane % 4, row = blockIdx.y * 16, column = blockIdx.x * 8;
    float d[4] = {};
    for (int i = 0; i < k; i += 8) {
        uint32_t big_a[4], small_a[4], big_b[2], small_b[2];
        for (int r = 0; r < 4; r++) split(a[(row + group + r % 2 * 8) * k + i + part + r / 2 * 4], big_a[r], small_a[r]);
        for (int r = 0; r < 2; r++) split(b[(i + part + r * 4) * n + column + group], big_b[r], small_b[r]);
        multiply(d, small_a, big_b);
        multiply(d, big_a, small_b);
        multiply(d, big_a, big_b);
    }
    for (int i = 0; i < 4; i++) c[(row + group + i / 2 * 8) * n + column + part * 2 + i % 2] = d[i];
}
