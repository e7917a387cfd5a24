// A stack machine: every thread runs the program on its own input, a switch per instruction, the stack in local memory.
extern "C" __global__ void interpret(const int* program, int length, const int* x, int* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int stack[16], top = 0, at = 0, fuel = 200;
    while (at < length && fuel--) {
        const int op = program[2 * at], argument = program[2 * at + 1];
        at++;
        switch (op) {
            case 0: stack[top++ & 15] = argument; break;
            case 1: stack[top++ & 15] = x[i]; break;
            case 2: top--; stack[top - 1 & 15] += stack[top & 15]; break;
            case 3: top--; stack[top - 1 & 15] *= stack[top & 15]; break;
            case 4: top--; stack[top - 1 & 15] -= stack[top & 15]; break;
            case 5: stack[top & 15] = stack[top - 1 & 15]; top++; break;
            case 6: top--; if (stack[top & 15] > 0) at = argument; break;
            case 7: stack[top - 1 & 15] >>= argument; break;
            case 8: top--; stack[top - 1 & 15] ^= stack[top & 15]; break;
            default: at = length;
        }
    }
    y[i] = stack[top - 1 & 15];
}
