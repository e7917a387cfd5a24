// CSR SpMV by merge path (Merrill and Garland): threads take equal shares of rows and nonzeros, partial rows by atomics.
extern "C" __global__ void spmv(const int* ends, const int* columns, const float* values, const float* x, float* y,
                                int rows, int nonzeros, int share) {
    const int diagonal = min((blockIdx.x * blockDim.x + threadIdx.x) * share, rows + nonzeros);
    const int last = min(diagonal + share, rows + nonzeros);
    auto search = [&](int d) {
        int low = max(0, d - nonzeros), high = min(d, rows);
        while (low < high) {
            const int middle = (low + high) / 2;
            if (ends[middle] <= d - middle - 1) low = middle + 1;
            else high = middle;
        }
        return low;
    };
    int row = search(diagonal), at = diagonal - row;
    const int row_end = search(last), end = last - row_end;
    float sum = 0;
    for (; row < row_end; row++) {
        for (; at < ends[row]; at++) sum += values[at] * x[columns[at]];
        atomicAdd(y + row, sum);
        sum = 0;
    }
    for (; at < end; at++) sum += values[at] * x[columns[at]];
    if (sum != 0) atomicAdd(y + row, sum);
}
