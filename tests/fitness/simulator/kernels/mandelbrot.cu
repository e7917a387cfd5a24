// Escape times of the Mandelbrot set in double precision: every lane leaves its loop at another turn.
extern "C" __global__ void mandelbrot(unsigned short* times, int width, int height, int most) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width * height) return;
    const double cx = -2.0 + 3.0 * (i % width) / width, cy = -1.5 + 3.0 * (i / width) / height;
    double x = 0, y = 0;
    int turn = 0;
    while (turn < most && __dadd_rn(__dmul_rn(x, x), __dmul_rn(y, y)) <= 4.0) {
        const double next = __dadd_rn(__dsub_rn(__dmul_rn(x, x), __dmul_rn(y, y)), cx);
        y = __dadd_rn(__dmul_rn(__dmul_rn(2.0, x), y), cy);
        x = next;
        turn++;
    }
    times[i] = turn;
}
