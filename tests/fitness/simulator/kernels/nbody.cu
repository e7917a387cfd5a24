// Accelerations of bodies under gravity: tiles of float4 in shared memory, softening, rsqrt.
extern "C" __global__ void forces(const float4* bodies, float4* out, int n) {
    extern __shared__ float4 tile[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 me = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
    float3 a = make_float3(0, 0, 0);
    for (int start = 0; start < n; start += blockDim.x) {
        tile[threadIdx.x] = start + threadIdx.x < n ? bodies[start + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < blockDim.x; j++) {
            const float4 other = tile[j];
            const float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            const float strength = other.w * inverse * inverse * inverse;
            a.x += dx * strength;
            a.y += dy * strength;
            a.z += dz * strength;
        }
        __syncthreads();
    }
    if (i < n) out[i] = make_float4(a.x, a.y, a.z, 0);
}
