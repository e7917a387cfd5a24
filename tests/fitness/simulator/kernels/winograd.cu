// 3 x 3 convolution by Winograd's F(2 x 2, 3 x 3): a thread makes four outputs, filters are transformed in shared memory.
template <int N>
__device__ __forceinline__ void rows_of_input(const float (&d)[4][N], float (&out)[4][N]) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        out[0][j] = d[0][j] - d[2][j];
        out[1][j] = d[1][j] + d[2][j];
        out[2][j] = d[2][j] - d[1][j];
        out[3][j] = d[1][j] - d[3][j];
    }
}

extern "C" __global__ void __launch_bounds__(64)
convolve(const float* x, const float* w, float* y, int channels, int height, int width, int filters) {
    extern __shared__ float transformed[];  // [channel][4][4] of this block's filter
    const int filter = blockIdx.y;
    for (int c = threadIdx.x; c < channels; c += 64) {
        float g[3][3], half[4][3];
        for (int i = 0; i < 9; i++) g[i / 3][i % 3] = w[(filter * channels + c) * 9 + i];
        for (int j = 0; j < 3; j++) {
            half[0][j] = g[0][j];
            half[1][j] = 0.5f * (g[0][j] + g[1][j] + g[2][j]);
            half[2][j] = 0.5f * (g[0][j] - g[1][j] + g[2][j]);
            half[3][j] = g[2][j];
        }
        for (int i = 0; i < 4; i++) {
            float* u = transformed + c * 16 + i * 4;
            u[0] = half[i][0];
            u[1] = 0.5f * (half[i][0] + half[i][1] + half[i][2]);
            u[2] = 0.5f * (half[i][0] - half[i][1] + half[i][2]);
            u[3] = half[i][2];
        }
    }
    __syncthreads();
    const int across = (width + 1) / 2, tile = blockIdx.x * 64 + threadIdx.x;
    const int top = tile / across * 2, left = tile % across * 2;
    if (top >= height) return;
    float m[4][4] = {};
    for (int c = 0; c < channels; c++) {
        float d[4][4], t[4][4];
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                const int r = top + i - 1, s = left + j - 1;
                const bool in = r >= 0 && r < height && s >= 0 && s < width;
                d[i][j] = in ? x[(c * height + r) * width + s] : 0;
            }
        rows_of_input(d, t);
        const float* u = transformed + c * 16;
        for (int i = 0; i < 4; i++) {
            m[i][0] += u[4 * i] * (t[i][0] - t[i][2]);
            m[i][1] += u[4 * i + 1] * (t[i][1] + t[i][2]);
            m[i][2] += u[4 * i + 2] * (t[i][2] - t[i][1]);
            m[i][3] += u[4 * i + 3] * (t[i][1] - t[i][3]);
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            float sum = 0;
            for (int a = i; a < i + 3; a++) {
                const float line = j == 0 ? m[a][0] + m[a][1] + m[a][2] : m[a][1] - m[a][2] - m[a][3];
                sum += i == 1 && a > 1 ? -line : line;
            }
            if (top + i < height && left + j < width) y[(filter * height + top + i) * width + left + j] = sum;
        }
}
