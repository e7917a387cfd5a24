// The eight largest of a row, by a warp: every lane keeps a sorted list in local memory, lists are merged by votes.
extern "C" __global__ void topk(const float* x, float* best, int* where, int n) {
    const int lane = threadIdx.x;
    const float* row = x + blockIdx.x * n;
    float v[8];
    int at[8];
    for (int i = 0; i < 8; i++) v[i] = __int_as_float(0xff800000), at[i] = -1;
    for (int i = lane; i < n; i += 32) {
        const float value = row[i];
        if (!(value > v[7])) continue;
        int j = 7;
        for (; j > 0 && v[j - 1] < value; j--) v[j] = v[j - 1], at[j] = at[j - 1];
        v[j] = value;
        at[j] = i;
    }
    int head = 0;
    for (int k = 0; k < 8; k++) {
        float mine = head < 8 ? v[head] : __int_as_float(0xff800000), top = mine;
        for (int i = 16; i; i /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, i));
        const unsigned holders = __ballot_sync(~0u, mine == top);
        if (lane == __ffs(holders) - 1) {
            best[blockIdx.x * 8 + k] = v[head];
            where[blockIdx.x * 8 + k] = at[head];
            head++;
        }
    }
}
