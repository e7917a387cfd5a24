// Kernels of the harness itself: poison, flush, checksum, load for the clock. Compiled like a candidate, run on the card.

// A 32-bit word that is NaN as float32 and, half by half, as float16 and bfloat16; never the NaN that hardware makes.
__device__ unsigned poison_word(unsigned long long index, unsigned seed) {
  unsigned long long z = (index + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  unsigned r = (unsigned)(z >> 32);
  return (r & 0x80008000u) | 0x7FC07F81u | (r & 0x001E001Eu);
}

extern "C" __global__ void poison(unsigned* words, unsigned long long count, const unsigned* seed) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    words[i] = poison_word(i, *seed);
}

extern "C" __global__ void tick(unsigned* seed) { *seed += 1; }

extern "C" __global__ void flush(unsigned* words, unsigned long long count) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    words[i] = words[i] * 3u + 1u;
}

// Position-dependent sum of all words: any changed word changes it.
extern "C" __global__ void checksum(const unsigned* words, unsigned long long count, unsigned long long* sum) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x, total = 0;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    unsigned long long z = (words[i] + 1ull) * 0x9E3779B97F4A7C15ull ^ (i * 0xD1B54A32D192ED03ull);
    z = (z ^ (z >> 31)) * 0xBF58476D1CE4E5B9ull;
    total += z ^ (z >> 29);
  }
  atomicAdd(sum, total);
}

extern "C" __global__ void burn(float* sink, int rounds) {
  float a = threadIdx.x, b = 1.0001f;
  for (int i = 0; i < rounds; i++) a = a * b + 0.5f;
  if (a == 12345.678f) *sink = a;
}
