"""PTX opcode -> kind of instruction as the cost model counts it (`counters.CLASSES`)."""

from __future__ import annotations

import functools
import re

_SHAPE = re.compile(r"m\d+n\d+k\d+")
_INPUT_TYPES = frozenset(
    {"f16", "bf16", "tf32", "f64", "s8", "u8", "s4", "u4", "b1", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}
)
_FLOATS = frozenset({"f32"})
_HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_SPECIAL = frozenset({"rcp", "rsqrt", "sqrt", "sin", "cos", "lg2", "ex2", "tanh", "div"})
_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "fma", "mad", "min", "max", "neg", "abs", "setp", "set", "slct", "copysign"}
)
_BY_HEAD = {
    "bar": "barrier",
    "barrier": "barrier",
    "membar": "fence",
    "fence": "fence",
    "shfl": "shuffle",
    "vote": "shuffle",
    "match": "shuffle",
    "redux": "shuffle",
    "activemask": "shuffle",
    "elect": "shuffle",
    "movmatrix": "shuffle",
    "ldmatrix": "ldmatrix",
    "stmatrix": "stmatrix",
    "bra": "branch",
    "brx": "branch",
    "call": "branch",
    "ret": "branch",
    "exit": "branch",
    "cvt": "convert",
    "mbarrier": "other",
    "trap": "other",
    "nop": "other",
    "pragma": "other",
}
#: Moves and address-space casts that ptxas folds into register allocation: they issue nothing.
FREE = frozenset({"mov", "cvta"})


@functools.cache
def classify(opcode: str) -> str:
    """Kind of one PTX instruction, for example "ld.global.nc.v4.u32" -> "load_global".

    `mov`, `cvta` and the like are "other"; `free` tells which of them issue nothing.
    """
    parts = opcode.split(".")
    head = parts[0]
    if head in ("mma", "wmma", "wgmma"):
        return _tensor(parts)
    if head in ("ld", "ldu", "st"):
        return ("store_" if head == "st" else "load_") + _space(parts)
    if head in ("atom", "red", "multimem"):
        return "atomic_shared" if "shared" in _spaces(parts) else "atomic_global"
    if head == "cp":
        return _copy(parts)
    if head in _BY_HEAD:
        return _BY_HEAD[head]
    return _arithmetic(head, set(parts[1:]))


def free(opcode: str) -> bool:
    """Whether ptxas normally removes the instruction (register moves, generic address casts)."""
    return opcode.split(".")[0] in FREE


def _arithmetic(head: str, types: set[str]) -> str:
    if head in FREE:
        return "other"
    if "f64" in types:
        return "fp64"
    if head in _SPECIAL and types & (_FLOATS | _HALVES):
        return "sfu"
    if head in _ARITHMETIC and types & _HALVES:
        return "fp16"
    return "fp32" if head in _ARITHMETIC and types & _FLOATS else "int"


def _spaces(parts: list[str]) -> set[str]:
    return {part.split("::")[0] for part in parts}


def _space(parts: list[str]) -> str:
    spaces = _spaces(parts)
    if "shared" in spaces:
        return "shared"
    if "local" in spaces:
        return "local"
    return "const" if spaces & {"const", "param"} else "global"


def _copy(parts: list[str]) -> str:
    if "bulk" in parts:
        return {"commit_group": "cp_async_commit", "wait_group": "cp_async_wait"}.get(parts[-1], "bulk")
    if "commit_group" in parts:
        return "cp_async_commit"
    return "cp_async_wait" if "wait_group" in parts or "wait_all" in parts else "cp_async"


def _tensor(parts: list[str]) -> str:
    shape = next((part for part in parts if _SHAPE.fullmatch(part)), None)
    head = parts[0]
    if shape is None:
        return "fence" if head == "wgmma" else "other"
    if head == "wmma" and parts[1] in ("load", "store"):
        return parts[1] + "_" + _space(parts)
    types = [part for part in parts if part in _INPUT_TYPES]
    # mma: d, a, b, c; the fp16 accumulators of "f16.f16.f16.f16" do not change the input type.
    kind = types[0] if len(types) != 3 or head != "mma" else types[1]
    name = "mma" if head == "wmma" else head
    sparse = any(part.startswith("sp") for part in parts[1:3])
    return f"{name}{'_sp' if sparse else ''}:{shape}:{kind if types else 'f16'}"
