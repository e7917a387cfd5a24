"""PTX opcode -> kind of instruction as the cost model counts it (`counters.CLASSES`)."""

from __future__ import annotations

import functools
import re

from fitness.devices.simulator.counters import Op

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
    "trap": "other",
    "nop": "other",
    "pragma": "other",
}
#: Moves, address-space casts and parameter reads that ptxas folds into operands: they issue nothing.
_FREE = frozenset({"mov", "cvta", "pragma"})
_DIVISIONS = {"s16": 12.0, "u16": 12.0, "s32": 18.0, "u32": 14.0, "s64": 70.0, "u64": 60.0}


@functools.cache
def classify(opcode: str) -> str:
    """Kind of one PTX instruction, for example "ld.global.nc.v4.u32" -> "load_global"."""
    parts = opcode.split(".")
    head = parts[0]
    if head in ("mma", "wmma", "wgmma"):
        return _tensor(parts)
    if head == "barrier" and parts[1] == "cluster":
        return "cluster_wait" if parts[2] == "wait" else "other"
    if head in ("ld", "st") and "shared::cluster" in parts:
        return "store_cluster" if head == "st" else "load_cluster"
    if head in ("ld", "ldu", "st"):
        return ("store_" if head == "st" else "load_") + _space(parts)
    if head in ("atom", "red", "multimem"):
        return "atomic_shared" if "shared" in _spaces(parts) else "atomic_global"
    if head == "cp":
        return _copy(parts)
    if head == "mbarrier":
        return "mbarrier_wait" if parts[1] in ("test_wait", "try_wait") else "mbarrier"
    if head in _BY_HEAD:
        return _BY_HEAD[head]
    if head == "cvt":
        return _conversion(parts[1:])
    return _arithmetic(head, set(parts[1:]))


@functools.cache
def issues(opcode: str) -> float:
    """Warp instructions ptxas makes of one PTX instruction, on average (read off SASS of sm_80..sm_90a).

    64-bit additions count once although they are two instructions, for most of them are constant offsets
    that end in the offset field of a load or store.
    """
    parts = opcode.split(".")
    head, types = parts[0], set(parts[1:])
    if head in _FREE or (head == "ld" and "param" in types) or (head == "cvt" and parts[-2:] == ["u64", "u32"]):
        return 0.0
    if head in ("div", "rem"):
        return next((cost for name, cost in _DIVISIONS.items() if name in types), 8.0 if "rn" in types else 2.0)
    if types & {"u64", "s64", "b64"} and head in ("mul", "mad", "shl", "shr", "setp", "and", "or", "xor", "min", "max"):
        return 3.0 if head in ("mul", "mad") and "wide" not in types else 2.0
    if head in ("sqrt", "rcp", "rsqrt") and "rn" in types:
        return 7.0
    if head == "wmma":
        return 4.0 if parts[1] in ("load", "store") and "shared" not in _spaces(parts) else 2.0
    return 1.0


def make_op(
    opcode: str,
    *,
    line: int = 0,
    defs: tuple[int, ...] = (),
    uses: tuple[int, ...] = (),
    site: int = -1,
    argument: int = 0,
    kind: str | None = None,
) -> Op:
    """The cost model's view of one PTX instruction (fields as in `Op`).

    Args:
        opcode: with all its modifiers, for example "ld.global.nc.v4.u32".
        kind: for generic loads and stores, whose space only the address tells: the kind it turned out to be.
        line: as in `Op`.
        defs: as in `Op`.
        uses: as in `Op`.
        site: as in `Op`.
        argument: as in `Op`.
    """
    return Op(kind or classify(opcode), line, defs, uses, site, argument, issues(opcode))


def _conversion(types: list[str]) -> str:
    if types[-2:] == ["f32", "f16"]:  # widening is an HADD2.F32
        return "fp16"
    if types[-2:] == ["f32", "bf16"]:  # and this a shift
        return "int"
    return "convert" if set(types) & (_FLOATS | _HALVES | {"f64", "tf32"}) else "int"


def _arithmetic(head: str, types: set[str]) -> str:
    if head in _FREE:
        return "other"
    if "f64" in types:
        return "fp64"
    if head in _SPECIAL and types & (_FLOATS | _HALVES):
        return "sfu"
    if head in _ARITHMETIC and types & _HALVES:
        return "fp16"
    return "fp32" if head in _ARITHMETIC and types & _FLOATS else "int"


def _spaces(parts: list[str]) -> set[str]:
    return set(map(_space_name, parts))


def _space_name(part: str) -> str:
    return part.split("::")[0]


def _space(parts: list[str]) -> str:
    spaces = _spaces(parts)
    if "shared" in spaces:
        return "shared"
    if "local" in spaces:
        return "local"
    return "const" if spaces & {"const", "param"} else "global"


def _copy(parts: list[str]) -> str:
    if "bulk" in parts:
        if "commit_group" in parts or "wait_group" in parts:
            return "other"  # groups of stores: nothing waits for a result
        spaces = [name for name in map(_space_name, parts) if name in ("shared", "global")]
        return "bulk_store" if spaces[:1] == ["global"] and "prefetch" not in parts else "bulk"
    if "mbarrier" in parts:
        return "mbarrier"
    if "commit_group" in parts:
        return "cp_async_commit"
    return "cp_async_wait" if "wait_group" in parts or "wait_all" in parts else "cp_async"


def _tensor(parts: list[str]) -> str:
    shape = next((part for part in parts if _SHAPE.fullmatch(part)), None)
    head = parts[0]
    if shape is None:
        return {"fence": "fence", "commit_group": "wgmma_commit", "wait_group": "wgmma_wait"}.get(parts[1], "other")
    if head == "wmma" and parts[1] in ("load", "store"):
        return parts[1] + "_" + _space(parts)
    types = [part for part in parts if part in _INPUT_TYPES] or ["f16"]
    # d, a, b, c in this order; 16-bit accumulators are listed as well and do not change the input type.
    kind = types[1] if len(types) >= 3 else types[0]
    name = "mma" if head == "wmma" else head
    sparse = any(part.startswith("sp") for part in parts[1:3])
    return f"{name}{'_sp' if sparse else ''}:{shape}:{kind}"
