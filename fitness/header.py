"""What the TOML header of a kernel file declares, as frozen dataclasses; `header_reader` makes them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from fitness.expressions import Expression

Init = Literal["poison", "zero", "zero_once"]
ONE: Final = Expression("1")
ZERO: Final = Expression("0")


class KernelError(ValueError):
    """A kernel file that cannot be read: `path:line: key: problem; fix`.

    Attributes:
        path: file as given; line: 1-based line of the file; key: TOML key ("launch[0].grid"), may be empty.
        problem: what is wrong; fix: what to write instead.
    """

    def __init__(self, path: str, line: int, key: str, problem: str, fix: str) -> None:
        super().__init__(path, line, key, problem, fix)
        self.path, self.line, self.key, self.problem, self.fix = path, line, key, problem, fix

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        return f"{self.path}:{self.line}: {key}{self.problem}; {self.fix}"


@dataclass(frozen=True)
class Param:
    """A tunable: its allowed values, distinct and in the header's order, and the default."""

    values: tuple[int, ...]
    default: int


@dataclass(frozen=True)
class FormatChoice:
    """A format by name with its options: a choice, the name of a param, or a number (see `formats.format.numbered`)."""

    name: str
    options: Mapping[str, str | int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted((key, str(value)) for key, value in self.options.items()))))


@dataclass(frozen=True)
class Workspace:
    """Scratch memory, `bytes` long, initialised before every launch sequence as `init` says."""

    name: str
    bytes: Expression
    init: Init = "poison"


@dataclass(frozen=True)
class TensorMap:
    """A TMA descriptor the harness encodes outside timing; passed by value as 128 bytes.

    Terms are those of cuTensorMapEncodeTiled, innermost dimension first; interleave is none.

    Attributes:
        tensor: name of a buffer. dtype: its element type, "" for that of the buffer.
        dims: elements; empty: the buffer's shape. strides: bytes, of all dimensions but the innermost; empty: packed.
        box, element_strides: elements; swizzle, l2promotion, oob: see `fitness.tensormap`.
    """

    name: str
    tensor: str
    box: tuple[Expression, ...]
    dims: tuple[Expression, ...] = ()
    strides: tuple[Expression, ...] = ()
    element_strides: tuple[Expression, ...] = ()
    dtype: str = ""
    swizzle: str = "none"
    l2promotion: str = "none"
    oob: str = "zeros"

    def expressions(self) -> dict[str, tuple[Expression, ...]]:
        """Every expression by header key."""
        return {
            "box": self.box,
            "dims": self.dims,
            "strides": self.strides,
            "element_strides": self.element_strides,
        }


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `grid`, `block`, `cluster`: x, y, z; `shared`: dynamic bytes; `carveout`: percent."""

    kernel: str
    grid: tuple[Expression, Expression, Expression]
    block: tuple[Expression, Expression, Expression]
    shared: Expression = ZERO
    args: tuple[str, ...] = ()
    memset: tuple[str, ...] = ()
    when: Expression = ONE
    cluster: tuple[Expression, Expression, Expression] = (ONE, ONE, ONE)
    cooperative: bool = False
    pdl: bool = False
    carveout: int | None = None

    @functools.cached_property
    def shaping(self) -> frozenset[str]:
        """Names that say how large it is: those of its grid, its blocks and their shared memory."""
        return frozenset().union(*(expression.names for expression in (*self.grid, *self.block, self.shared)))

    def expressions(self) -> dict[str, tuple[Expression, ...]]:
        """Every expression by header key."""
        return {
            "grid": self.grid,
            "block": self.block,
            "cluster": self.cluster,
            "shared": (self.shared,),
            "when": (self.when,),
        }


@dataclass(frozen=True)
class Header:
    """What the header comment declares.

    `dtypes`, `out_dtypes`, `layouts`: element types of W and X, of Y, and layouts of X and Y that the code is written
    for; empty: any.
    `lines`: TOML key ("launch[0].grid") -> line of the file, for findings made later (see `line`).
    """

    about: str
    format: FormatChoice
    launches: tuple[Launch, ...]
    params: Mapping[str, Param]
    require: tuple[Expression, ...] = ()
    constraints: tuple[Expression, ...] = ()
    atomics: bool = False
    align: int = 16
    dtypes: tuple[str, ...] = ()
    out_dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    workspaces: tuple[Workspace, ...] = ()
    tensormaps: tuple[TensorMap, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @functools.cached_property
    def launch_names(self) -> frozenset[str]:
        """Names that some launch mentions in its size or its condition."""
        return frozenset().union(*(launch.shaping | launch.when.names for launch in self.launches))

    def line(self, key: str) -> int | None:
        """Line of a key, or of the nearest enclosing one ("launch[0].when" -> "launch[0]")."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return self.lines.get(key)
