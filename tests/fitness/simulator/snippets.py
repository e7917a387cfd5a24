"""Random CUDA kernels and what they compute by definition: branches, loops, shared memory, warp operations.

A snippet is a tree of statements over four unsigned registers per thread. `cuda(snippet)` writes it as a kernel;
`expected(snippet, x)` runs it in NumPy on all threads at once, a mask telling who takes part. Programs are free of
races and undefined behaviour by construction: divisors are odd, shifts below the width, shared stores go to a
permutation of the threads between barriers, warp operations name exactly the lanes that execute them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Mask = NDArray[np.bool_]

THREADS, BLOCKS, REGISTERS = 64, 3, 4
_U32, _U64, _LANES = np.uint32, np.uint64, 32


# ---------------------------------------------------------------- expressions


def _signed(x: Words) -> NDArray[np.int32]:
    return x.view(np.int32)


def _wide(x: Words) -> NDArray[np.uint64]:
    return x.astype(_U64)


def _floats(x: Words) -> NDArray[np.float32]:
    """`__uint2float_rn`."""
    return x.astype(np.float32)


def _bits(x: NDArray[Any]) -> Words:
    return np.ascontiguousarray(x, dtype=np.float32).view(_U32)


def _count(x: Words) -> Words:
    ones: Words = np.bitwise_count(x).astype(_U32)
    return ones


def _pick(x: Words, y: Words, z: Words) -> Words:
    picked: Words = np.where((x & _U32(1)) != 0, y, z)
    return picked


def _leading(x: Words) -> Words:
    """`__clz`: 32 less the bits in use, which float64 holds exactly."""
    return np.where(x == 0, 32, 31 - np.floor(np.log2(np.maximum(x, 1).astype(np.float64)))).astype(_U32)


def _reversed(x: Words) -> Words:
    return (
        np.packbits(np.unpackbits(x.view(np.uint8).reshape(-1, 4)[:, ::-1], axis=1)[:, ::-1], axis=1, bitorder="big")[
            :, ::-1
        ]
        .copy()
        .view(_U32)
        .ravel()
    )


def _permuted(x: Words, y: Words, selector: Words) -> Words:
    """`__byte_perm`: nibble i of the selector picks byte i of y:x."""
    both = _wide(y) << _U64(32) | _wide(x)
    out = np.zeros_like(x)
    for place in range(4):
        byte = selector >> _U32(4 * place) & _U32(7)
        out |= (both >> _wide(byte * _U32(8)) & _U64(255)).astype(_U32) << _U32(8 * place)
    return out


def _dot(x: Words, y: Words, z: Words) -> Words:
    """`__dp4a` on signed bytes."""
    a, b = (v.view(np.int8).reshape(-1, 4).astype(np.int64) for v in (x, y))
    total: Words = (z.astype(np.int64) + (a * b).sum(axis=1)).astype(_U32)
    return total


def _quotient(x: Words, y: Words) -> Words:
    """Signed division of a non-negative number, toward zero."""
    a, b = (x >> _U32(1)).astype(np.int64), _signed(y | _U32(1)).astype(np.int64)
    return (np.sign(b) * (a // np.abs(b))).astype(np.int32).view(_U32)


#: name -> (C, operands, NumPy).
OPERATIONS: dict[str, tuple[str, Callable[..., Words]]] = {
    "add": ("({0} + {1})", lambda x, y: x + y),
    "sub": ("({0} - {1})", lambda x, y: x - y),
    "mul": ("({0} * {1})", lambda x, y: x * y),
    "and": ("({0} & {1})", lambda x, y: x & y),
    "or": ("({0} | {1})", lambda x, y: x | y),
    "xor": ("({0} ^ {1})", lambda x, y: x ^ y),
    "not": ("(~{0})", lambda x: ~x),
    "shl": ("({0} << ({1} & 31))", lambda x, y: x << (y & _U32(31))),
    "shr": ("({0} >> ({1} & 31))", lambda x, y: x >> (y & _U32(31))),
    "sar": ("unsigned(int({0}) >> ({1} & 31))", lambda x, y: (_signed(x) >> _signed(y & _U32(31))).view(_U32)),
    "min": ("min({0}, {1})", np.minimum),
    "max": ("unsigned(max(int({0}), int({1})))", lambda x, y: np.maximum(_signed(x), _signed(y)).view(_U32)),
    "mulhi": ("__umulhi({0}, {1})", lambda x, y: (_wide(x) * _wide(y) >> _U64(32)).astype(_U32)),
    "smulhi": ("unsigned(__mulhi(int({0}), int({1})))",
               lambda x, y: (_signed(x).astype(np.int64) * _signed(y) >> 32).astype(np.int32).view(_U32)),
    "div": ("({0} / ({1} | 1))", lambda x, y: x // (y | _U32(1))),
    "rem": ("({0} % ({1} | 1))", lambda x, y: x % (y | _U32(1))),
    "sdiv": ("unsigned(int({0} >> 1) / int({1} | 1))", _quotient),
    "wide": ("unsigned((unsigned long long)({0}) * {1} >> ({2} & 63))",
             lambda x, y, z: (_wide(x) * _wide(y) >> _wide(z & _U32(63))).astype(_U32)),
    "add64": ("unsigned((((unsigned long long){0} << 32 | {1}) + {2} * 3ull) >> 16)",
              lambda x, y, z: (((_wide(x) << _U64(32) | _wide(y)) + _wide(z) * _U64(3)) >> _U64(16)).astype(_U32)),
    "funnel": ("__funnelshift_l({0}, {1}, {2})",
               lambda x, y, z: ((_wide(y) << _U64(32) | _wide(x)) << _wide(z & _U32(31)) >> _U64(32)).astype(_U32)),
    "perm": ("__byte_perm({0}, {1}, {2} & 0x7777)", _permuted),
    "dp4a": ("unsigned(__dp4a(int({0}), int({1}), int({2})))", _dot),
    "popc": ("unsigned(__popc({0}))", _count),
    "clz": ("unsigned(__clz({0}))", _leading),
    "brev": ("__brev({0})", _reversed),
    "less": ("unsigned({0} < {1})", lambda x, y: (x < y).astype(_U32)),
    "sless": ("unsigned(int({0}) < int({1}))", lambda x, y: (_signed(x) < _signed(y)).astype(_U32)),
    "pick": ("({0} & 1 ? {1} : {2})", _pick),
    "tofloat": ("__float_as_uint(__uint2float_rn({0}))", lambda x: _bits(_floats(x))),
    "fadd": ("__float_as_uint(__fadd_rn(__uint2float_rn({0}), -__uint2float_rn({1})))",
             lambda x, y: _bits(_floats(x) - _floats(y))),
    "fmul": ("__float_as_uint(__fmul_rn(__uint2float_rn({0}), __uint2float_rn({1})))",
             lambda x, y: _bits(_floats(x) * _floats(y))),
    "fdiv": ("__float_as_uint(__fdiv_rn(__uint2float_rn({0}), __uint2float_rn({1} | 1)))",
             lambda x, y: _bits(_floats(x) / _floats(y | _U32(1)))),
    "fsqrt": ("__float_as_uint(__fsqrt_rn(__uint2float_rn({0})))", lambda x: _bits(np.sqrt(_floats(x)))),
    "fint": ("__float2uint_rz(__fmul_rn(__uint2float_rn({0}), 0.375f))",
             lambda x: (_floats(x) * np.float32(0.375)).astype(np.float32).astype(_U64).astype(_U32)),
    "half": ("unsigned(__half_as_ushort(__uint2half_rn({0} & 0xffff)))",
             lambda x: (x & _U32(0xFFFF)).astype(np.float32).astype(np.float16).view(np.uint16).astype(_U32)),
}  # fmt: skip


def arity(name: str) -> int:
    """Operands of an operation."""
    return max(int(part[0]) for part in OPERATIONS[name][0].split("{")[1:]) + 1


@dataclass(frozen=True)
class Expression:
    """A register, an input, a constant or an operation on others."""

    kind: str  # "register", "constant", "thread", or a name of OPERATIONS
    value: int = 0
    operands: tuple[Expression, ...] = ()

    def c(self) -> str:
        """As CUDA."""
        if self.kind == "register":
            return f"v{self.value}"
        if self.kind == "constant":
            return f"{self.value}u"
        if self.kind == "thread":
            return "threadIdx.x"
        return OPERATIONS[self.kind][0].format(*(operand.c() for operand in self.operands))

    def run(self, state: State) -> Words:
        """Its value in every thread."""
        if self.kind == "register":
            return state.registers[self.value]
        if self.kind == "constant":
            return np.full(BLOCKS * THREADS, self.value, _U32)
        if self.kind == "thread":
            return state.thread
        return OPERATIONS[self.kind][1](*(operand.run(state) for operand in self.operands))


# ---------------------------------------------------------------- statements


@dataclass
class State:
    """Registers of all threads, shared memory of all blocks."""

    registers: list[Words]
    thread: Words
    shared: Words  # (BLOCKS, THREADS)

    def assign(self, register: int, value: Words, mask: Mask) -> None:
        """Where the mask holds."""
        self.registers[register] = np.where(mask, value, self.registers[register]).astype(_U32)


@dataclass(frozen=True)
class Statement:
    """One statement.

    `kind`: "set" (register = a), "if" (a & 1: body, else other), "loop" (a & 7 turns of body; leaves where b & 3 is 0),
    "skips" (a & 7 turns of body, left out where (b + turn) & 3 is 0), "switch" (a & 3: body, other and what follows,
    register = b, register + 1),
    "shuffle", "vote", "reduce" and "match" (register = warp operation of a), "exchange" (through shared memory, b xors
    the place), "gather" (a barrier, all store, register = shared[b & 63]), "atomic" (shared[b & 63] += a; between
    barriers).
    """

    kind: str
    register: int = 0
    a: Expression = Expression("constant")
    b: Expression = Expression("constant")
    body: tuple[Statement, ...] = ()
    other: tuple[Statement, ...] = ()


def cuda(snippet: Sequence[Statement]) -> str:
    """The kernel `snippet(x, y)`: x holds the registers' first values, y gets their last."""
    lines = [f"  unsigned v{i} = x[{REGISTERS} * at + {i}];" for i in range(REGISTERS)]
    body = _written(snippet, "~0u", 0)
    ends = [f"  y[{REGISTERS} * at + {i}] = v{i};" for i in range(REGISTERS)]
    return "\n".join(
        [
            "#include <cuda_fp16.h>",
            'extern "C" __global__ void snippet(const unsigned* x, unsigned* y) {',
            f"  __shared__ unsigned s[{THREADS}];",
            "  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;",
            *lines, *body, *ends, "}", "",
        ]
    )  # fmt: skip


def _written(statements: Sequence[Statement], mask: str, depth: int) -> list[str]:
    pad = "  " * (depth + 1)
    return [pad + line for number, one in enumerate(statements) for line in _one(one, mask, f"{depth}_{number}", depth)]


def _one(one: Statement, mask: str, name: str, depth: int) -> list[str]:
    a, b, v = one.a.c(), one.b.c(), f"v{one.register}"
    if one.kind == "if":
        inner = f"m{name}"
        return [
            f"{{ const bool p = {a} & 1;",
            f"const unsigned {inner} = __ballot_sync({mask}, p), o{inner} = {mask} & ~{inner};",
            "if (p) {", *_written(one.body, inner, depth + 1), "} else {", *_written(one.other, f"o{inner}", depth + 1),
            "} }",
        ]  # fmt: skip
    if one.kind == "loop":
        inner = f"m{name}"
        return [
            f"{{ unsigned {inner} = {mask}; const unsigned n = {a} & 7; for (unsigned i = 0; ; i++) {{",
            f"const bool p = i < n; {inner} = __ballot_sync({inner}, p); if (!p) break;",
            *_written(one.body, inner, depth + 1),
            f"const bool q = ({b} & 3) != 0; {inner} = __ballot_sync({inner}, q); if (!q) break; }} }}",
        ]
    if one.kind == "skips":
        inner, part = f"m{name}", f"k{name}"
        return [
            f"{{ unsigned {inner} = {mask}; const unsigned n = {a} & 7; for (unsigned i = 0; ; i++) {{",
            f"const bool p = i < n; {inner} = __ballot_sync({inner}, p); if (!p) break;",
            f"const bool q = (({b} + i) & 3) != 0; const unsigned {part} = __ballot_sync({inner}, q);",
            "if (!q) continue;",
            *_written(one.body, part, depth + 1),
            "} }",
        ]
    if one.kind == "switch":
        first, second = f"m{name}", f"o{name}"
        return [
            f"{{ const unsigned w = {a} & 3, {first} = __ballot_sync({mask}, w == 0);",
            f"const unsigned {second} = __ballot_sync({mask}, w == 1);",
            "switch (w) { case 0: {", *_written(one.body, first, depth + 1), "break; } case 1: {",
            *_written(one.other, second, depth + 1), f"}} case 2: {v} = {b}; break; default: {v} += 1; }} }}",
        ]  # fmt: skip
    simple = {
        "set": f"{v} = {a};",
        "shuffle": f"{v} = __shfl_sync({mask}, {a}, __fns({mask}, 0, ({b} & 31) % __popc({mask}) + 1));",
        "vote": f"{v} = __ballot_sync({mask}, {a} & 1) + __any_sync({mask}, {a} & 2) "
        f"+ 2 * __all_sync({mask}, {a} & 4);",
        "reduce": f"{v} = __reduce_add_sync({mask}, {a}) ^ __reduce_max_sync({mask}, {a});",
        "match": f"{v} = __match_any_sync({mask}, {a} & 3);",
        "exchange": f"__syncthreads(); s[threadIdx.x ^ {one.b.value & 63}] = {a}; __syncthreads(); "
        f"{v} += s[threadIdx.x];",
        "gather": f"__syncthreads(); s[threadIdx.x] = {a}; __syncthreads(); {v} ^= s[{b} & 63];",
        "atomic": f"__syncthreads(); s[threadIdx.x] = threadIdx.x; __syncthreads(); "
        f"if ({a} & 1) atomicAdd(s + ({b} & 63), {a}); __syncthreads(); {v} = s[threadIdx.x];",
    }
    return [simple[one.kind]]


def expected(snippet: Sequence[Statement], x: Words) -> Words:
    """Last values of the registers, as `cuda` leaves them in y."""
    thread = np.tile(np.arange(THREADS, dtype=_U32), BLOCKS)
    state = State([x.reshape(-1, REGISTERS)[:, i].copy() for i in range(REGISTERS)], thread,
                  np.zeros((BLOCKS, THREADS), _U32))  # fmt: skip
    with np.errstate(all="ignore"):
        _run(snippet, state, np.ones(BLOCKS * THREADS, bool))
    return np.stack(state.registers, axis=1).ravel()


def _run(statements: Sequence[Statement], state: State, mask: Mask) -> None:
    for one in statements:
        if one.kind == "if":
            taken = mask & (one.a.run(state) & _U32(1) != 0)
            _run(one.body, state, taken)
            _run(one.other, state, mask & ~taken)
        elif one.kind == "loop":
            turns, still = one.a.run(state) & _U32(7), mask
            for turn in range(7):
                still = still & (turn < turns)
                _run(one.body, state, still)
                still = still & (one.b.run(state) & _U32(3) != 0)
        elif one.kind == "skips":
            turns, still = one.a.run(state) & _U32(7), mask
            for turn in range(7):
                still = still & (turn < turns)
                taken = still & (one.b.run(state) + _U32(turn) & _U32(3) != 0)
                _run(one.body, state, taken)
        elif one.kind == "switch":
            way = one.a.run(state) & _U32(3)
            _run(one.body, state, mask & (way == 0))
            _run(one.other, state, mask & (way == 1))
            state.assign(one.register, one.b.run(state), mask & ((way == 1) | (way == 2)))
            state.assign(one.register, state.registers[one.register] + _U32(1), mask & (way == 3))
        else:
            state.assign(one.register, _value(one, state, mask), mask)


def _value(one: Statement, state: State, mask: Mask) -> Words:
    a = one.a.run(state)
    if one.kind == "set":
        return a
    if one.kind in ("exchange", "gather", "atomic"):
        return _through_shared(one, state, a)
    warps, here = a.reshape(-1, _LANES), mask.reshape(-1, _LANES)
    out = np.zeros_like(warps)
    b = one.b.run(state).reshape(-1, _LANES)
    for warp in range(len(warps)):
        lanes = np.flatnonzero(here[warp])
        for lane in lanes:
            out[warp, lane] = _of_warp(one.kind, warps[warp], int(b[warp, lane]), lanes, int(lane))
    return out.ravel()


def _of_warp(kind: str, values: Words, b: int, lanes: NDArray[np.intp], lane: int) -> int:
    mine = values[lanes]
    if kind == "shuffle":
        return int(values[lanes[(b & 31) % lanes.size]])
    if kind == "vote":
        ballot = sum(1 << int(i) for i in lanes if values[i] & 1)
        return (ballot + int((mine & 2).any()) + 2 * int((mine & 4).all())) % (1 << 32)
    if kind == "reduce":
        return (int(mine.sum(dtype=_U64)) % (1 << 32)) ^ int(mine.max())
    return sum(1 << int(i) for i in lanes if values[i] & 3 == values[lane] & 3)


def _through_shared(one: Statement, state: State, a: Words) -> Words:
    old, thread = state.registers[one.register], np.arange(THREADS)
    rows = a.reshape(BLOCKS, THREADS)
    if one.kind == "exchange":
        return old + rows[:, thread ^ (one.b.value & 63)].ravel()
    places = (one.b.run(state) & _U32(63)).reshape(BLOCKS, THREADS)
    if one.kind == "gather":
        return old ^ np.take_along_axis(rows, places.astype(np.intp), axis=1).ravel()
    sums = np.tile(thread.astype(_U32), (BLOCKS, 1))
    for block in range(BLOCKS):
        adds = (rows[block] & 1) != 0
        np.add.at(sums[block], places[block][adds], rows[block][adds])
    return sums.ravel()


# ---------------------------------------------------------------- strategies


def expressions() -> st.SearchStrategy[Expression]:
    """Trees of up to about six operations."""
    constants = st.one_of(st.integers(0, 40), st.sampled_from([0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x9E3779B9]))
    leaves = st.one_of(
        st.builds(Expression, st.just("register"), st.integers(0, REGISTERS - 1)),
        st.builds(Expression, st.just("constant"), constants),
        st.just(Expression("thread")),
    )

    def larger(smaller: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        def operation(name: str) -> st.SearchStrategy[Expression]:
            operands = st.tuples(*[smaller] * arity(name))
            return st.builds(lambda found: Expression(name, 0, found), operands)

        return st.sampled_from(sorted(OPERATIONS)).flatmap(operation)

    return st.recursive(leaves, larger, max_leaves=6)


def snippets() -> st.SearchStrategy[tuple[Statement, ...]]:
    """Statements with branches and loops two deep; block-wide ones at the top only."""
    register, value = st.integers(0, REGISTERS - 1), expressions()
    setting = st.builds(Statement, st.just("set"), register, value)
    warp = st.builds(Statement, st.sampled_from(["shuffle", "vote", "reduce", "match"]), register, value, value)
    simple = st.one_of(setting, setting, warp)

    def nested(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
        bodies = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(
            st.builds(Statement, st.just("if"), register, value, value, bodies, bodies),
            st.builds(Statement, st.sampled_from(["loop", "skips"]), register, value, value, bodies),
            st.builds(Statement, st.just("switch"), register, value, value, bodies, bodies),
        )

    one = nested(simple)
    two = nested(st.one_of(simple, one))
    constant = st.builds(Expression, st.just("constant"), st.integers(0, 63))
    block = st.one_of(
        st.builds(Statement, st.just("exchange"), register, value, constant),
        st.builds(Statement, st.sampled_from(["gather", "atomic"]), register, value, value),
    )
    top = st.one_of(simple, one, two, block)
    return st.lists(top, min_size=1, max_size=6).map(tuple)
