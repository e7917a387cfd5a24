// Layer normalisation of float4 rows by Welford's recurrence, merged across lanes (Chan et al.).
#include "evo.cuh"

struct Moments { float mean, m2, n; };

__device__ Moments merged(Moments a, Moments b) {
    const float n = a.n + b.n, delta = b.mean - a.mean;
    if (n == 0) return a;
    return {a.mean + delta * b.n / n, a.m2 + b.m2 + delta * delta * a.n * b.n / n, n};
}

extern "C" __global__ void layernorm(const float4* x, const float4* gamma, const float4* beta, float4* y, int quads,
                                     float epsilon) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    x += row * quads;
    y += row * quads;
    Moments own = {0, 0, 0};
    for (int i = threadIdx.x; i < quads; i += 32) {
        const float4 v = x[i];
        const float all[4] = {v.x, v.y, v.z, v.w};
        for (float value : all) {
            own.n += 1;
            const float delta = value - own.mean;
            own.mean += delta / own.n;
            own.m2 += delta * (value - own.mean);
        }
    }
    for (int i = 16; i; i /= 2) {
        const Moments other = {__shfl_xor_sync(~0u, own.mean, i), __shfl_xor_sync(~0u, own.m2, i),
                               __shfl_xor_sync(~0u, own.n, i)};
        own = merged(own, other);
    }
    const float scale = rsqrtf(own.m2 / own.n + epsilon);
    for (int i = threadIdx.x; i < quads; i += 32) {
        const float4 v = x[i], g = gamma[i], b = beta[i];
        y[i] = make_float4((v.x - own.mean) * scale * g.x + b.x, (v.y - own.mean) * scale * g.y + b.y,
                           (v.z - own.mean) * scale * g.z + b.z, (v.w - own.mean) * scale * g.w + b.w);
    }
}
