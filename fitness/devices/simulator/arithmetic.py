"""From a PTX opcode to the NumPy function that does it, for everything that is not memory, control or warp.

`instruction("fma.rn.f32")` is called once per instruction when code is generated. The function it returns takes
the source registers in the order of the PTX operands and gives the destination register:

* .b32/.u32/.s32 uint32, .b64 and kin uint64, .b16/.u16/.s16/.f16/.bf16 uint16, .f32 float32, .f64 float64,
  .pred bool; arrays over lanes, or NumPy scalars of those types (so immediates must be given their type);
* it neither masks nor checks, and expects to run under `np.errstate(all="ignore")`.

Immediates that select the operation (the table of `lop3`) are part of the lookup: `instruction("lop3.b32",
table=0x96)`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator import bits, floating, half, integer
from fitness.devices.simulator.convert import INTEGERS, UnsupportedConversion, conversion
from fitness.devices.simulator.registers import plain
from fitness.devices.simulator.rounding import flush_f32

Array = NDArray[Any]
Operation = Callable[..., Array]

_TYPE = re.compile(r"[busf](8|16|32|64|128)|b?f16(x2)?|tf32|pred|e[45]m[23]x2|bf16x2|s16x2|u16x2")
_FLOATS = ("f32", "f64")


class UnsupportedInstruction(ValueError):  # noqa: N818 - the engine turns it into the outcome Unsupported
    """This instruction is not modelled; the message is its opcode."""


class Opcode:
    """A split opcode: `base`, `flags` (modifiers) and `types` in order ("mul.wide.s32" and the like)."""

    def __init__(self, text: str) -> None:
        parts = text.split(".")
        self.text = text
        self.base = parts[0]
        self.types = [p for p in parts[1:] if _TYPE.fullmatch(p)]
        self.flags = frozenset(p for p in parts[1:] if not _TYPE.fullmatch(p))

    @property
    def type(self) -> str:
        """The instruction's (last) type."""
        return self.types[-1]


@functools.cache
def instruction(opcode: str, *, table: int | None = None, exact: bool = False) -> Operation:
    """The function of an arithmetic, logic, conversion or comparison instruction.

    Args:
        opcode: the full opcode without guard and operands, for example "mad.lo.s32".
        table: the immediate truth table of `lop3`.
        exact: round `fma.rn.f32` once instead of twice (slower; see floating.py).

    Returns:
        A function of the source registers. `setp` gives the first predicate (with a boolean operator it takes
        the third source; the second destination uses the negated comparison, see `comparison`), for packed
        halves a pair of predicates.

    Raises:
        UnsupportedInstruction: not modelled.
    """
    op = Opcode(opcode)
    if "cc" in op.flags or op.base in ("addc", "subc", "madc"):
        raise UnsupportedInstruction(opcode)
    try:
        if op.base == "lop3":
            if table is None:
                raise UnsupportedInstruction(opcode)
            return bits.lop3(table)
        if op.base == "cvt":
            return conversion(op.types[0], op.types[1], op.flags)
        if op.base in ("setp", "set"):
            return _setp(op) if op.base == "setp" else _set(op)
        return _scalarised(_lookup(op, exact))
    except (KeyError, IndexError, UnsupportedConversion) as error:
        raise UnsupportedInstruction(opcode) from error


def _scalarised(function: Operation) -> Operation:
    """Bare ufuncs already give scalars for scalars; other functions may give 0-d arrays."""
    if isinstance(function, np.ufunc):
        return function
    return lambda *sources: plain(function(*sources))


def _lookup(op: Opcode, exact: bool) -> Operation:
    if op.type in half.KINDS and op.base not in _LOGIC:
        return half.operation(op.base, op.type, op.flags)
    if op.type in _FLOATS and op.base in _FLOATING:
        if op.base in ("fma", "mad"):
            return floating.fma(op.type, op.flags, exact=exact)
        return _FLOATING[op.base](op)
    return (_LOGIC.get(op.base) or _INTEGER[op.base])(op)


_FLOATING: dict[str, Callable[[Opcode], Operation]] = {
    "add": lambda op: floating.add(op.type, op.flags),
    "sub": lambda op: floating.subtract(op.type, op.flags),
    "mul": lambda op: floating.multiply(op.type, op.flags),
    "fma": lambda op: floating.fma(op.type, op.flags),
    "mad": lambda op: floating.fma(op.type, op.flags),
    "div": lambda op: floating.divide(op.type, op.flags),
    "sqrt": lambda op: floating.square_root(op.type, op.flags),
    "rcp": lambda op: floating.reciprocal(op.type, op.flags),
    "min": lambda op: floating.minimum(op.type, op.flags),
    "max": lambda op: floating.maximum(op.type, op.flags),
    "neg": lambda op: floating.finish_f32(np.negative, op.flags) if op.type == "f32" else np.negative,
    "abs": lambda op: floating.finish_f32(np.abs, op.flags) if op.type == "f32" else np.abs,
    "copysign": lambda op: floating.copy_sign(op.type),
    "testp": lambda op: floating.property_test(next(iter(op.flags)), op.type),
    **{
        name: functools.partial(lambda name, op: floating.approximate(name, op.type, op.flags), name)
        for name in ("ex2", "lg2", "rsqrt", "sin", "cos", "tanh")
    },
}


def _logic(function: Operation) -> Callable[[Opcode], Operation]:
    return lambda _op: function


def _select(a: Array, b: Array, predicate: Array) -> Array:
    picked: Array = np.where(predicate, a, b)
    return picked


def _slct(op: Opcode) -> Operation:
    """`slct`: a where c >= 0, else b (an f32 c: NaN and -0 by comparison)."""
    whole = op.type != "f32"

    def run(a: Array, b: Array, c: Array) -> Array:
        sign = np.asarray(c).view(np.int32) if whole else c
        picked: Array = np.where(sign >= 0, a, b)
        return picked

    return run


_LOGIC: dict[str, Callable[[Opcode], Operation]] = {
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _logic(np.invert),
    "cnot": _logic(lambda a: (np.asarray(a) == 0).astype(np.asarray(a).dtype)),
    "selp": _logic(_select),
    "slct": _slct,
}


def _add(op: Opcode) -> Operation:
    if op.type.endswith("x2"):
        if "sat" in op.flags:
            raise KeyError(op.text)
        return half.paired(np.add)
    return integer.saturating(op.type, np.add) if "sat" in op.flags else np.add


def _minimum(op: Opcode) -> Operation:
    return _extremum(op, np.minimum)


def _maximum(op: Opcode) -> Operation:
    return _extremum(op, np.maximum)


def _extremum(op: Opcode, function: Operation) -> Operation:
    """`min` and `max` of integers, pairs of 16-bit ones included; `.relu` of signed ones."""
    relu = "relu" in op.flags
    kind = op.type.removesuffix("x2")
    if relu and not kind.startswith("s"):
        raise KeyError(op.text)
    chosen = integer.typed(kind, (lambda a, b: np.maximum(function(a, b), 0)) if relu else function)
    return half.paired(chosen) if op.type.endswith("x2") else chosen


def _vabsdiff(op: Opcode) -> Operation:
    """`vabsdiff4`, `vabsdiff2` without masks and saturation: absolute differences of bytes or halves, or their sum."""
    if op.flags - {"add"} or len(op.types) != 3:
        raise KeyError(op.text)
    return bits.absolute_differences(8 if op.base.endswith("4") else 16, op.types[1], op.types[2], "add" in op.flags)


def _subtract(op: Opcode) -> Operation:
    return integer.saturating(op.type, np.subtract) if "sat" in op.flags else np.subtract


def _multiply(op: Opcode) -> Operation:
    if "wide" in op.flags:
        return integer.multiply_wide(op.type)
    return integer.multiply_high(op.type) if "hi" in op.flags else np.multiply


def _multiply_add(op: Opcode) -> Operation:
    product = _multiply(op)
    if "sat" in op.flags:
        total = integer.saturating(op.type, np.add)
        return lambda a, b, c: total(product(a, b), c)
    return lambda a, b, c: product(a, b) + c


def _multiply_24(op: Opcode) -> Operation:
    """`mul24.lo`, `mad24.lo`: the low 24 bits of both operands."""
    signed = op.type == "s32"

    def narrow(a: Array) -> Array:
        top = np.left_shift(np.asarray(a), np.uint32(8))
        moved: Array = top.view(np.int32) >> np.int32(8) if signed else top >> np.uint32(8)
        return moved.view(np.uint32)

    if "hi" in op.flags:
        raise KeyError(op.text)
    if op.base == "mad24":
        return lambda a, b, c: narrow(a) * narrow(b) + c
    return lambda a, b: narrow(a) * narrow(b)


_INTEGER: dict[str, Callable[[Opcode], Operation]] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "mad": _multiply_add,
    "mul24": _multiply_24,
    "mad24": _multiply_24,
    "div": lambda op: integer.divide(op.type),
    "rem": lambda op: integer.remainder(op.type),
    "abs": lambda op: integer.absolute(op.type),
    "neg": lambda op: integer.negate(op.type),
    "min": _minimum,
    "max": _maximum,
    "vabsdiff2": _vabsdiff,
    "vabsdiff4": _vabsdiff,
    "sad": lambda op: integer.absolute_difference(op.type),
    "shl": lambda op: bits.shift_left(int(op.type[1:])),
    "shr": lambda op: bits.shift_right(op.type),
    "shf": lambda op: bits.shf("l" if "l" in op.flags else "r", "wrap" in op.flags),
    "prmt": lambda op: bits.prmt(next(iter(op.flags), "")),
    "bfe": lambda op: bits.bfe(op.type),
    "bfi": lambda op: bits.bfi(op.type),
    "bfind": lambda op: bits.bfind(op.type, "shiftamt" in op.flags),
    "popc": _logic(bits.popc),
    "clz": _logic(bits.clz),
    "brev": _logic(bits.brev),
    "bmsk": lambda op: bits.bmsk("wrap" in op.flags),
    "dp4a": lambda op: bits.dp4a(op.types[0], op.types[1]),
    "dp2a": lambda op: bits.dp2a(op.types[0], op.types[1], "hi" in op.flags),
    "fns": _logic(bits.fns),
    "szext": lambda op: bits.szext(op.type == "s32", "wrap" in op.flags),
}


# ---------------------------------------------------------------- extended precision


def with_carry(op: Opcode) -> Callable[..., tuple[Array, Array]]:
    """`add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`: (sources, carry in) -> (result, carry or borrow out).

    Raises:
        KeyError: there is no such instruction.
    """
    if op.base.rstrip("c") == "mad":
        product = integer.multiply_high(op.type) if "hi" in op.flags else np.multiply

        def multiply_add(a: Array, b: Array, c: Array, carry: Array) -> tuple[Array, Array]:
            return _sum_with_carry(product(a, b), c, carry)

        return multiply_add
    return {"add": _sum_with_carry, "addc": _sum_with_carry, "sub": _difference, "subc": _difference}[op.base]


def _sum_with_carry(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    partial = a + b
    total = partial + np.asarray(carry).astype(partial.dtype)
    return plain(total), plain((partial < a) | (total < partial))


def _difference(a: Array, b: Array, borrow: Array) -> tuple[Array, Array]:
    partial = a - b
    total = partial - np.asarray(borrow).astype(partial.dtype)
    return plain(total), plain((a < b) | (total > partial))


# ---------------------------------------------------------------- comparisons

_ORDERED: dict[str, Operation] = {
    "eq": np.equal,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
_WHOLE: dict[str, Operation] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_BOOLEAN: dict[str, Operation] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(name: str, type_name: str, *, ftz: bool = False) -> Callable[[Array, Array], Any]:
    """The comparison of `setp.<name>.<type>`: registers -> bool (packed halves: a pair of them).

    Raises:
        KeyError: there is no such comparison.
    """
    if type_name in half.KINDS:
        return half.compare(_ORDERED[name], type_name)
    if type_name in _FLOATS:
        test = _ORDERED[name]
        if ftz and type_name == "f32":
            return lambda a, b: test(flush_f32(a), flush_f32(b))
        return test
    test = _WHOLE[name]
    if not type_name.startswith("s"):
        return test
    signed = np.dtype(INTEGERS[type_name])
    return lambda a, b: test(np.asarray(a).view(signed), np.asarray(b).view(signed))


def _compare(op: Opcode) -> tuple[Callable[[Array, Array], Any], Operation | None]:
    """The comparison and the boolean operator of a `setp` or `set`."""
    name = next(f for f in op.text.split(".")[1:] if f in _ORDERED or f in _WHOLE)
    combine = next((_BOOLEAN[f] for f in op.text.split(".")[1:] if f in _BOOLEAN), None)
    return comparison(name, op.type, ftz="ftz" in op.flags), combine


def _setp(op: Opcode) -> Operation:
    test, combine = _compare(op)
    if combine is None:
        return test
    if op.type.endswith("x2"):
        raise UnsupportedInstruction(op.text)
    return lambda a, b, c: combine(test(a, b), c)


def _set_packed(op: Opcode, test: Callable[[Array, Array], Any], combine: Operation | None) -> Operation:
    """`set` of pairs: each half of the result is 1.0 (floating-point destination) or all ones where true."""
    ones = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(op.types[0], 0xFFFF)
    if combine is not None:
        raise UnsupportedInstruction(op.text)
    low, high = np.uint32(ones), np.uint32(ones << 16)
    zero = np.uint32(0)

    def run(a: Array, b: Array) -> Array:
        below, above = test(a, b)
        return plain(np.where(below, low, zero) | np.where(above, high, zero))

    return run


def _set(op: Opcode) -> Operation:
    """`set`: all ones or 1.0 where true, in the destination type (types[0])."""
    test, combine = _compare(op)
    destination = op.types[0]
    if op.type in ("f16x2", "bf16x2"):
        return _set_packed(op, test, combine)
    if destination.endswith("x2"):
        raise UnsupportedInstruction(op.text)
    true: Any = {
        "f32": np.float32(1),
        "f16": np.uint16(0x3C00),
        "bf16": np.uint16(0x3F80),
        "u16": np.uint16(0xFFFF),
        "s16": np.uint16(0xFFFF),
    }.get(destination, np.uint32(0xFFFFFFFF))
    zero = type(true)(0)
    if combine is None:
        return lambda a, b: plain(np.where(test(a, b), true, zero))
    return lambda a, b, c: plain(np.where(combine(test(a, b), c), true, zero))
