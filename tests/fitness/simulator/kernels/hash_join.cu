// Join of two tables by an open-addressing hash table: keys are claimed by compare-and-swap, a lock guards each group.
#include <cuda/atomic>

__device__ unsigned slot_of(unsigned key, unsigned mask) {
    key ^= key >> 16, key *= 0x7feb352du, key ^= key >> 15, key *= 0x846ca68bu;
    return (key ^ key >> 16) & mask;
}

extern "C" __global__ void insert(const unsigned* keys, const int* values, unsigned* table, int2* groups, int* locks,
                                  int n, unsigned mask) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned at = slot_of(keys[i], mask);
    for (;; at = (at + 1) & mask) {
        cuda::atomic_ref<unsigned, cuda::thread_scope_device> cell(table[at]);
        unsigned found = 0;
        if (cell.compare_exchange_strong(found, keys[i], cuda::memory_order_relaxed) || found == keys[i]) break;
    }
    cuda::atomic_ref<int, cuda::thread_scope_device> lock(locks[at]);
    for (bool done = false; !done;)
        if (lock.exchange(1, cuda::memory_order_acquire) == 0) {
            const int2 group = groups[at];
            groups[at] = make_int2(max(group.x, values[i]), group.y + values[i]);
            lock.store(0, cuda::memory_order_release);
            done = true;
        } else {
            __nanosleep(20);
        }
}

extern "C" __global__ void probe(const unsigned* keys, const unsigned* table, const int2* groups, int2* found,
                                 int n, unsigned mask) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned at = slot_of(keys[i], mask);
    while (table[at] != 0 && table[at] != keys[i]) at = (at + 1) & mask;
    found[i] = table[at] == 0 ? make_int2(-1, -1) : groups[at];
}
