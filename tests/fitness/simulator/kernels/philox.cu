// Philox 4x32-10 counters (Salmon et al.): raw words, and normal numbers by Box and Muller.
extern "C" __global__ void generate(uint4* words, float2* normals, unsigned seed, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint4 c = make_uint4(i, 0, 7, 0);
    uint2 key = make_uint2(seed, 0x1234567);
    for (int round = 0; round < 10; round++) {
        const unsigned h0 = __umulhi(0xD2511F53, c.x), l0 = 0xD2511F53 * c.x;
        const unsigned h1 = __umulhi(0xCD9E8D57, c.z), l1 = 0xCD9E8D57 * c.z;
        c = make_uint4(h1 ^ c.y ^ key.x, l1, h0 ^ c.w ^ key.y, l0);
        key.x += 0x9E3779B9;
        key.y += 0xBB67AE85;
    }
    words[i] = c;
    const float u = (c.x + 0.5f) * 2.3283064e-10f, v = c.y * 2.3283064e-10f, radius = sqrtf(-2 * logf(u));
    normals[i] = make_float2(radius * cospif(2 * v), radius * sinpif(2 * v));
}
