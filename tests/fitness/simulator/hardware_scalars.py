"""Scalar instructions in small kernels: a lane each for random words and special values, to be compared with a card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LANES = 512
RESULTS = {"word": "u4", "wide": "u8", "half": "u2", "float": "f4"}
"""Type of a result by kind of operands: 32-bit words, 64-bit words, 16-bit words, floats between 0 and 1."""

_PROLOGUE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const WORD* x, WORD* y) {
  const WORD a = x[threadIdx.x], b = x[threadIdx.x + 512], c = x[threadIdx.x + 1024];
  DECLARED
  y[threadIdx.x] = RESULT;
}
"""
_ASM = 'unsigned r; asm("{op} %0, {operands};" : "=r"(r) : {inputs});'
_FLOATS = "const float f = __uint_as_float(a), g = __uint_as_float(b);"
_DOUBLES = "const double d = __longlong_as_double(a), e = __longlong_as_double(b), g = __longlong_as_double(c);"


def operands(kind: str) -> Array:
    """Three rows of operands: random bits, and infinities, NaN, zeros, subnormals and ones among them."""
    bits = 8 * np.dtype(RESULTS[kind]).itemsize
    if kind == "float":
        return np.random.default_rng(7).random(3 * LANES, dtype=np.float32)
    random = np.random.default_rng(bits)
    x = random.integers(0, 1 << bits, 3 * LANES, dtype=np.uint64).astype(RESULTS[kind])
    precision = {16: 10, 32: 23, 64: 52}[bits]
    infinity = ((1 << bits - 1) - (1 << precision)) % (1 << bits)
    one = infinity // 2 + (1 << precision - 1) - (1 << precision - 1) % (1 << precision)
    special = [
        0,
        1 << bits - 1,
        infinity,
        infinity | 1 << bits - 1,
        infinity + 1,
        1,
        (1 << precision) - 1,
        one,
        2,
        31,
        32,
    ]
    chosen = random.random(x.size) < 0.2
    x[chosen] = random.choice(np.array(special, dtype=x.dtype), int(chosen.sum()))
    near = random.random(x.size) < 0.3  # numbers of ordinary size
    if kind != "half":
        values = random.standard_normal(x.size).astype("f4" if kind == "word" else "f8").view(x.dtype)
        x[near] = values[near]
    return x


def jobs() -> Iterator[tuple[str, str, str, float]]:
    """(name, kernel, kind of operands, tolerance) of every instruction; kernels make NaN canonical."""
    for op, count in (
        ("fns.b32", 3), ("dp2a.lo.s32.u32", 3), ("dp2a.hi.u32.s32", 3), ("add.u16x2", 2), ("min.s16x2", 2),
        ("max.u16x2", 2), ("max.relu.s16x2", 2), ("vabsdiff4.u32.u32.u32", 3), ("vabsdiff2.s32.s32.s32", 3),
        ("vabsdiff4.u32.u32.u32.add", 3), ("set.lt.f16x2.f16x2", 2), ("set.neu.u32.f16x2", 2),
        ("set.geu.bf16x2.bf16x2", 2), ("szext.wrap.s32", 2), ("bmsk.clamp.b32", 2),
    ):  # fmt: skip
        names = ["a", "b & 31" if op == "fns.b32" else "b", "int(c % 17) - 8" if op == "fns.b32" else "c"][:count]
        inputs = ", ".join(f'"r"({name})' for name in names)
        places = ", ".join(f"%{i + 1}" for i in range(count))
        yield op, _kernel("word", _ASM.format(op=op, operands=places, inputs=inputs), "r"), "word", 0.0
    for mode in ("rz", "ru", "rd"):
        for name, call in (("div", "__fdiv_{}(f, g)"), ("rcp", "__frcp_{}(f)"), ("sqrt", "__fsqrt_{}(f)")):
            result = "__float_as_uint(r != r ? __uint_as_float(0x7fffffff) : r)"
            text = f"{_FLOATS} const float r = {call.format(mode)};"
            yield f"{name}.{mode}.f32", _kernel("word", text, result), "word", 0.0
        for name in ("add", "mul", "div", "fma"):
            call = f"__d{name}_{mode}(d, e)" if name != "fma" else f"__fma_{mode}(d, e, g)"
            result = "__double_as_longlong(r != r ? __longlong_as_double(0x7ff8000000000000) : r)"
            yield f"{name}.{mode}.f64", _kernel("wide", f"{_DOUBLES} const double r = {call};", result), "wide", 0.0
    for kind, make, bits in (("half", "__ushort_as_half", "__half_as_ushort"),
                             ("bf16", "__ushort_as_bfloat16", "__bfloat16_as_ushort")):  # fmt: skip
        for name in ("hsqrt", "hrsqrt", "hrcp", "hexp", "hexp2", "hexp10", "hlog", "hlog2", "hlog10", "htanh"):
            text = f"const auto v = {make}(a), r = {name}(v);"
            result = f"__hisnan(r) ? 0x7fff : {bits}(r)"
            yield f"{name} {kind}", _kernel("half", text, result), "half", 1.0


#: name -> (operand made of a number f in [0, 1), largest error relative to the largest result in that range, as the ISA
#: states it or wider).
_APPROXIMATE = {
    "ex2.approx.f32": ("2 * f - 1", 2.0**-21.5), "lg2.approx.f32": ("0.5f + 1.5f * f", 2.0**-21),
    "rcp.approx.f32": ("1 + f", 2.0**-22), "rsqrt.approx.f32": ("1 + 3 * f", 2.0**-22),
    "sqrt.approx.f32": ("1 + 3 * f", 2.0**-22), "sin.approx.f32": ("6.28f * f - 3.14f", 2.0**-20),
    "cos.approx.f32": ("6.28f * f - 3.14f", 2.0**-20), "tanh.approx.f32": ("8 * f - 4", 2.0**-10.5),
    "ex2.approx.ftz.f32": ("2 * f - 1", 2.0**-21.5), "rcp.approx.ftz.f32": ("1 + f", 2.0**-22),
}  # fmt: skip
_SPECIALS = "const unsigned v[5] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000}; "


def approximations() -> Iterator[tuple[str, str, str, float]]:
    """The approximate functions: within their range, then at zeros, infinities and NaN (bit for bit)."""
    for op, (operand, tolerance) in _APPROXIMATE.items():
        text = f'const float f = a, v = {operand}; float r; asm("{op} %0, %1;" : "=f"(r) : "f"(v));'
        yield op, _kernel("float", text, "r"), "float", tolerance
        text = _SPECIALS + f'float r; asm("{op} %0, %1;" : "=f"(r) : "f"(__uint_as_float(v[a % 5])));'
        yield f"{op} at limits", _kernel("word", text, "r != r ? 0x7fffffff : __float_as_uint(r)"), "word", 0.0


def _kernel(kind: str, declared: str, result: str) -> str:
    word = {"word": "unsigned", "wide": "unsigned long long", "half": "unsigned short", "float": "float"}[kind]
    return _PROLOGUE.replace("WORD", word).replace("DECLARED", declared).replace("RESULT", result)
