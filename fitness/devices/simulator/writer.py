"""Writing the Python function of one basic block: operands to expressions, results to assignments.

Generated functions take `_m` (the machine), `_c` (the group's context) and the block's live registers. A
register is a Python variable of its own name; `u_<name>` beside it says which lanes hold an uninitialised
value (False: none), kept only for registers that static analysis cannot clear.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fitness.devices.simulator.faults import unsupported
from fitness.devices.simulator.layout import Layout
from fitness.devices.simulator.ptx import Immediate, Instruction, Negated, Operand, Register, Symbol
from fitness.devices.simulator.sites import Site
from fitness.devices.simulator.variables import type_bytes

_FLOATS: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

#: Special registers read from the context (as attribute) or from the launch.
_SPECIAL = {
    "%tid.x": "_c.tid_x", "%tid.y": "_c.tid_y", "%tid.z": "_c.tid_z",
    "%ctaid.x": "_c.ctaid_x", "%ctaid.y": "_c.ctaid_y", "%ctaid.z": "_c.ctaid_z",
    "%ntid.x": "_m.ntid[0]", "%ntid.y": "_m.ntid[1]", "%ntid.z": "_m.ntid[2]",
    "%nctaid.x": "_m.nctaid[0]", "%nctaid.y": "_m.nctaid[1]", "%nctaid.z": "_m.nctaid[2]",
    "%laneid": "_c.laneid", "%warpid": "_c.warpid", "%smid": "_c.smid", "%nwarpid": "_m.nwarpid",
    "%nsmid": "_m.nsmid", "%gridid": "_m.gridid",
    "%clock": "_m.clock()", "%clock64": "_m.clock64()", "%globaltimer": "_m.clock64()",
    "%clock_hi": "_m.zero", "%globaltimer_lo": "_m.clock()", "%globaltimer_hi": "_m.zero",
    "%lanemask_eq": "_c.lanemask('eq')", "%lanemask_lt": "_c.lanemask('lt')", "%lanemask_le": "_c.lanemask('le')",
    "%lanemask_gt": "_c.lanemask('gt')", "%lanemask_ge": "_c.lanemask('ge')",
    "%dynamic_smem_size": "_m.dynamic_shared", "%total_smem_size": "_m.total_shared",
    "%envreg1": "_m.workspace[1]", "%envreg2": "_m.workspace[0]",
    "%clusterid.x": "_c.clusterid[0]", "%clusterid.y": "_c.clusterid[1]", "%clusterid.z": "_c.clusterid[2]",
    "%nclusterid.x": "_m.nclusterid[0]", "%nclusterid.y": "_m.nclusterid[1]", "%nclusterid.z": "_m.nclusterid[2]",
    "%cluster_ctaid.x": "_c.cluster_ctaid[0]", "%cluster_ctaid.y": "_c.cluster_ctaid[1]",
    "%cluster_ctaid.z": "_c.cluster_ctaid[2]",
    "%cluster_nctaid.x": "_m.cluster[0]", "%cluster_nctaid.y": "_m.cluster[1]", "%cluster_nctaid.z": "_m.cluster[2]",
    "%cluster_ctarank": "_c.cluster_ctarank", "%cluster_nctarank": "_m.cluster_nctarank",
}  # fmt: skip


def register_dtype(kind: str) -> np.dtype[Any]:
    """NumPy type in which a register of this class (or an operand of this type) is held."""
    if kind == "pred":
        return np.dtype(np.bool_)
    if kind in _FLOATS:
        floating: np.dtype[Any] = np.dtype(_FLOATS[kind])
        return floating
    unsigned: np.dtype[Any] = np.dtype(_UNSIGNED[type_bytes(kind)])
    return unsigned


def immediate(text: str, dtype: np.dtype[Any]) -> Any:
    """A literal as a NumPy scalar of the given type."""
    if text[:2] in ("0f", "0F"):
        bits = np.uint32(int(text[2:], 16))
        return bits.view(dtype) if dtype.itemsize == 4 else dtype.type(bits.view(np.float32))
    if text[:2] in ("0d", "0D"):
        value = struct.unpack("<d", struct.pack("<Q", int(text[2:], 16)))[0]
        return np.float64(value).view(dtype) if dtype.itemsize == 8 else dtype.type(value)
    if dtype.kind == "f":
        return dtype.type(float(text) if any(c in text for c in ".eE") else int(text.rstrip("U"), 0))
    if dtype.kind == "b":
        return np.bool_(int(text, 0) != 0)
    return dtype.type(int(text.rstrip("U"), 0) % (1 << (8 * dtype.itemsize)))


class Writer:
    """Accumulates the code of one entry.

    Attributes:
        space: the namespace the code runs in (constants, functions, sites). track: follow uninitialised values.
    """

    def __init__(self, layout: Layout, tainted: frozenset[str], kinds: dict[str, str], *, track: bool) -> None:
        self.layout, self.kinds, self.track = layout, kinds, track
        self.tainted = tainted if track else frozenset()
        #: Registers that may hold results of wgmma that are not ready (their taint is a code, see wgmma.py).
        self.asynchronous: frozenset[str] = frozenset()
        self.unfenced: dict[int, str] = {}  # what is wrong with the fences of a wgmma, by id of the instruction
        self.origins: dict[int, frozenset[str] | None] = {}  # where addresses point, by id of the instruction
        self.line = 0  # of the instruction being written
        self.carry = False  # an instruction of this block has set the carry flag
        self.space: dict[str, Any] = {"_A": np.ndarray, "_np": np}
        for name in [
            "bool_",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "int8",
            "int16",
            "int32",
            "int64",
            "float32",
            "float64",
        ]:
            self.space[f"_{name}"] = getattr(np, name)
        self.lines: list[str] = []
        self.sites: list[Site] = []
        self._constants: dict[tuple[str, bytes], str] = {}
        self._functions: dict[int, str] = {}
        self.defined_unused: frozenset[str] = frozenset()

    # ---- building blocks

    def put(self, line: str) -> None:
        """Append one line of the current function."""
        self.lines.append("    " + line)

    def constant(self, value: Any) -> str:
        """Name of a NumPy scalar constant."""
        key = (value.dtype.str, value.tobytes())
        if key not in self._constants:
            self._constants[key] = f"_k{len(self._constants)}"
            self.space[self._constants[key]] = value
        return self._constants[key]

    def function(self, function: Any) -> str:
        """Name of a helper object in the namespace."""
        if id(function) not in self._functions:
            self._functions[id(function)] = f"_f{len(self._functions)}"
            self.space[self._functions[id(function)]] = function
        return self._functions[id(function)]

    def site(
        self, instruction: Instruction, verb: str, space: str, dtype: Any, count: int = 1, offset: int = 0
    ) -> tuple[str, Site]:
        """A new memory site and its name."""
        site = Site(len(self.sites), verb, space, dtype, count, offset, instruction.line, instruction.text)
        site.cluster = "shared::cluster" in instruction.op
        site.origins = self.origins.get(id(instruction))
        self.sites.append(site)
        name = f"_s{site.index}"
        self.space[name] = site
        return name, site

    # ---- operands

    def value(self, operand: Operand, kind: str, line: int = 0) -> str:
        """Expression of a source operand in the register type of `kind`."""
        dtype = register_dtype(kind)
        if isinstance(operand, Register):
            return converted(operand.name, register_dtype(operand.kind), dtype)
        if isinstance(operand, Immediate):
            return self.constant(immediate(operand.text, dtype))
        if isinstance(operand, Negated):
            if operand.operand.kind == "pred":
                return f"(~{operand.operand.name})"
            return f"(-{converted(operand.operand.name, register_dtype(operand.operand.kind), dtype)})"
        if isinstance(operand, Symbol):
            return self.symbol(operand.name, dtype, line)
        raise unsupported(f"operand {operand}", line)

    def symbol(self, name: str, dtype: np.dtype[Any], line: int = 0) -> str:
        """A special register, WARP_SZ or the address of a variable."""
        if name == "%is_explicit_cluster" and dtype.kind == "b":
            return "_m.explicit_cluster"
        if name in _SPECIAL:
            special = _SPECIAL[name]
            held = np.dtype(np.uint64 if "64" in name or name == "%globaltimer" else np.uint32)
            return converted(special, held, dtype)
        if name == "WARP_SZ":
            return self.constant(dtype.type(32))
        if name in self.layout.symbols:
            return self.constant(dtype.type(self.layout.symbols[name][1] % (1 << (8 * dtype.itemsize))))
        raise unsupported(f"the name {name}", line)

    def assign(self, register: Register, kind: str, expression: str) -> None:
        """Write a result of type `kind` to a register."""
        expression = converted(expression, register_dtype(kind), register_dtype(register.kind), wrap=True)
        self.put(f"{register.name} = {expression}")

    # ---- taint

    def taint_of(self, registers: Iterable[Register]) -> str:
        """Expression of the union of the taints of sources ("False" where none can be tainted)."""
        names = sorted({r.name for r in registers if r.name in self.tainted})
        marks = [f"_m.wgmma.mark(_c, u_{n}, {self.line})" if n in self.asynchronous else f"u_{n}" for n in names]
        return " | ".join(marks) or "False"

    def copied_taint(self, register: Register) -> str:
        """Expression of the taint that a plain copy of a register has; it may stay unready."""
        return f"u_{register.name}" if register.name in self.tainted else "False"

    def assign_taint(self, registers: Sequence[Register], expression: str) -> None:
        """Set the taint of results."""
        if not self.track:
            return
        names = [f"u_{r.name}" for r in registers if r.name in self.tainted]
        if names:
            self.put(f"{' = '.join(names)} = {expression}")

    def variables(self, names: Iterable[str]) -> list[str]:
        """Variables that carry these registers between functions: values, then taints."""
        names = list(names)
        return names + [f"u_{name}" for name in names if name in self.tainted]


def converted(expression: str, held: np.dtype[Any], wanted: np.dtype[Any], *, wrap: bool = False) -> str:
    """An expression of one register type as another (same bits; truncated or zero-extended between sizes)."""
    if held == wanted:
        return expression
    if wrap or not expression.replace(".", "").replace("_", "").isalnum():
        expression = f"({expression})"
    if held.itemsize == wanted.itemsize:
        return f"{expression}.view(_{wanted.name})" if wanted.kind != "b" else f"({expression} != 0)"
    if held.kind == "b" or wanted.kind in "iu":
        bits = f"u{held.itemsize}"
        source = expression if held.kind in "biu" else f"{expression}.view('{bits}')"
        return f"{source}.astype(_{wanted.name})"
    raise unsupported(f"a {held.name} register used as {wanted.name}", 0)
