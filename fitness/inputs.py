"""Cases: operands of a task made from a seed, packed in a kernel's format, with the float64 reference.

W and X (and so the reference) depend on task, shape, data kind and seed only, never on the format, so that all
kernels of a task meet the same numbers. They are cached, since workers judge many kernels on the same case.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fitness.devices.device import Inputs
from fitness.dtypes import DTYPES, Dtype
from fitness.epilogue import Operands as EpilogueOperands
from fitness.formats import get_format
from fitness.formats.format import complete
from fitness.gpu import Gpu
from fitness.kernel import FormatChoice
from fitness.task import Shape, Task

Array = NDArray[Any]

DATA: Final = (
    "normal",  # zero-mean: exposes skipped work
    "positive",  # uniform in [0.25, 1): exposes low-precision accumulators
    "integers",  # -2 .. 2: the result is exact
    "needle",  # one nonzero in all of W
    "scaled",  # rows of W scaled by 2^10 and 2^-10
    "awkward",  # normal values, but empty rows and blocks, one full row, groups with any subset of their slots
    "empty",  # nnz = 0
    "negative_zero",  # the zeros of W and some of X are -0.0
    "denormals",  # W subnormal in float16
    "nonfinite",  # NaN and Inf in X and in a nonzero of W
    "overflow",  # some rows exceed the output dtype
)

_CACHE_BYTES: Final = 384 * 2**20


class Run(NamedTuple):
    """One correctness run: which shape, which data, which seed."""

    shape: Shape
    data: str
    seed: int


def small_runs(task: Task) -> tuple[Run, ...]:
    """The six fixed runs of gate 4, cheapest to catch most: see `shapes.SMALL_TARGETS` for the shapes."""
    kinds = ("normal", "positive", "integers", "awkward", "normal", "needle")
    return tuple(Run(s, data, i) for i, (s, data) in enumerate(zip(task.small_shapes(), kinds, strict=True)))


def full_runs(task: Task, *, seed: int = 0) -> tuple[Run, ...]:
    """Gate 4's full list, for seeds and confirmation: the six, then every tail shape with the data kinds in turn.

    Args:
        task: the task.
        seed: confirmation passes a fresh one; the six fixed runs keep theirs.
    """
    shapes = task.full_shapes()
    tails = [Run(shape, ("normal", "positive", "awkward")[i % 3], seed + i) for i, shape in enumerate(shapes)]
    tail_shape = task.small_shapes()[1]
    kinds = [Run(tail_shape, data, seed + 100 + i) for i, data in enumerate(DATA)]
    return (*small_runs(task), *tails, *kinds)


@dataclass(frozen=True, eq=False)
class Operands:
    """W (M, K) and X (K, N) in logical form, quantised to the task's dtype, and what they determine.

    All results are computed once, when first asked for.
    """

    task: Task
    w: Array
    x: Array
    added: EpilogueOperands
    _packed: dict[FormatChoice, dict[str, Array]] = field(default_factory=dict, repr=False)

    def buffers(self, choice: FormatChoice) -> dict[str, Array]:
        """W packed in a format with complete options, and X in the task's layout; read-only arrays."""
        if choice not in self._packed:
            options = {name: str(option) for name, option in choice.options.items()}
            packed = get_format(choice.name).pack(self.w, options)
            x = self.x.T if self.task.x_layout == "col" else self.x
            arrays = {
                **{f"W.{name}": array for name, array in packed.items()},
                "X": np.ascontiguousarray(x),
                **self.added_buffers(),
            }
            for array in arrays.values():
                array.flags.writeable = False
            self._packed[choice] = arrays
        return self._packed[choice]

    def added_buffers(self) -> dict[str, Array]:
        """`bias` and `residual`, the latter in the layout of Y; one NaN each where the epilogue has none."""
        bias, residual = self.added.bias, self.added.residual
        if bias is None:
            bias = np.full(1, np.nan, DTYPES[self.task.dtype].numpy)
        if residual is None:
            residual = np.full(1, np.nan, DTYPES[self.task.out_dtype].numpy)
        elif self.task.y_layout == "col":
            residual = residual.T
        return {"bias": bias, "residual": np.ascontiguousarray(residual)}

    @property
    def held_bytes(self) -> int:
        """Memory it holds or will hold; reference, scale and limits of the criterion take 25 bytes a result."""
        packed = sum(array.nbytes for arrays in self._packed.values() for array in arrays.values())
        return int(self.w.nbytes + self.x.nbytes + self.added.nbytes + packed + 25 * self.w.shape[0] * self.x.shape[1])

    @cached_property
    def finite(self) -> bool:
        """No NaN or Inf in either operand; the reference then does not depend on the format."""
        return bool(np.isfinite(self.w.astype(np.float32)).all() and np.isfinite(self.x.astype(np.float32)).all())

    @cached_property
    def nnz(self) -> int:
        """Nonzeros of W (-0.0 is a zero)."""
        return int(np.sum(self.row_nnz))

    @cached_property
    def row_nnz(self) -> NDArray[np.int64]:
        """Nonzeros of each row, (M,)."""
        counts: NDArray[np.int64] = np.count_nonzero(self.w, axis=1)
        return counts

    @cached_property
    def reference(self) -> NDArray[np.float64]:
        """The result in float64, epilogue included, (M, N). Finite operands only."""
        return self.task.chain.apply(self.task.operation.reference(self.w, self.x, None), self.added)

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """sqrt((W*W) @ (X*X)), (M, N), carried through the epilogue."""
        return self.task.chain.error_scale(self.task.operation.scale(self.w, self.x), self.added)


@dataclass(frozen=True, eq=False)
class Case:
    """One correctness or timing case of a task, in a kernel's format.

    Attributes:
        task, shape, data, seed: what it was made from.
        inputs: buffers ("W.values", ..., "X") and outputs ("Y") as a device takes them.
        scalars: integer arguments by name ("M", "ldx", ...).
        names: names for the kernel's expressions at this shape and card; params are the caller's to add.
        format: the storage, options complete.
    """

    task: Task
    shape: Shape
    data: str
    seed: int
    format: FormatChoice
    inputs: Inputs
    scalars: Mapping[str, int | float]
    names: Mapping[str, int]
    operands: Operands = field(repr=False)

    @property
    def out(self) -> Dtype:
        """Element type of Y."""
        return DTYPES[self.task.out_dtype]

    @cached_property
    def reference(self) -> NDArray[np.float64]:
        """The float64 result, (M, N), not rounded; NaN and Inf of X count where the format stores a slot."""
        if self.operands.finite:
            return self.operands.reference
        options = {name: str(option) for name, option in self.format.options.items()}
        stored = get_format(self.format.name).stored_mask(self.operands.w, options)
        product = self.task.operation.reference(self.operands.w, self.operands.x, stored)
        return self.task.chain.apply(product, self.operands.added)

    @property
    def scale(self) -> NDArray[np.float64]:
        """sqrt((W*W) @ (X*X)), (M, N)."""
        return self.operands.scale

    @cached_property
    def empty_rows(self) -> NDArray[np.bool_]:
        """(M,) True where W has no nonzero."""
        empty: NDArray[np.bool_] = self.operands.row_nnz == 0
        return empty

    @property
    def exact(self) -> bool:
        """True if results must be bitwise exact where representable (small integers)."""
        chain = self.task.chain
        return self.data in ("integers", "empty") if not chain else self.data == "integers" and chain.exact

    def logical(self, outputs: Mapping[str, Array]) -> Array:
        """Y as (M, N) whatever its layout; a view.

        Args:
            outputs: as an Execution gives them.
        """
        y = outputs["Y"]
        return y.T if self.task.y_layout == "col" else y

    def logical_written(self, written: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Which elements of Y were written, (M, N)."""
        y = written["Y"]
        return y.T if self.task.y_layout == "col" else y


def make_case(task: Task, shape: Shape, format: FormatChoice, *, seed: int, data: str, gpu: Gpu) -> Case:  # noqa: A002
    """Make one case; the same arguments give the same bytes.

    Args:
        task: what is computed.
        shape: M, N, K; in the task's domain.
        format: how W is stored (`Kernel.format`; missing options take their defaults).
        seed: of the operands.
        data: one of `DATA`.
        gpu: gives `SMS` and `L2` to expressions.

    Raises:
        ValueError: unknown data kind.
        FormatError: the format cannot store the operand.
    """
    storage = get_format(format.name)
    options = complete(storage, {name: str(option) for name, option in format.options.items()})
    choice = FormatChoice(format.name, dict(options))
    operands = _operands(task, shape, data, seed)
    buffers = operands.buffers(choice)
    _trim_cache()
    m, n = shape["M"], shape["N"]
    y = np.zeros((n, m) if task.y_layout == "col" else (m, n), DTYPES[task.out_dtype].numpy)
    names = task.expression_names(shape)
    return Case(
        task=task,
        shape=dict(shape),
        data=data,
        seed=seed,
        format=choice,
        inputs=Inputs(buffers, {"Y": y}),
        scalars={
            **names,
            "W.nnz": operands.nnz,
            "W.max_row": int(operands.row_nnz.max(initial=0)),
            "scale": np.nan if operands.added.factor is None else operands.added.factor,
        },
        names={
            **names,
            "SMS": gpu.sms,
            "L2": gpu.l2_bytes,
            "W.nnz": operands.nnz,
            "W.max_row": int(operands.row_nnz.max(initial=0)),
        },
        operands=operands,
    )


# -- operands ---------------------------------------------------------------------------------------------------------

_cache: OrderedDict[tuple[object, ...], Operands] = OrderedDict()


def _operands(task: Task, shape: Shape, data: str, seed: int) -> Operands:
    """Made once, then from the cache."""
    if data not in DATA:
        raise ValueError(f"data = {data!r} is not one of {DATA}")
    key = (task.fingerprint, tuple(sorted(shape.items())), data, seed)
    if key in _cache:
        _cache.move_to_end(key)
        return _cache[key]
    entropy = [int(task.fingerprint[:8], 16), zlib.crc32(data.encode()), seed, shape["M"], shape["N"], shape["K"]]
    made = _make_operands(task, shape, data, np.random.default_rng(np.random.SeedSequence(entropy)))
    _cache[key] = made
    return made


def _trim_cache() -> None:
    """Drop the least recently used until all kept ones are below `_CACHE_BYTES`; the latest is always kept."""
    while len(_cache) > 1 and sum(operands.held_bytes for operands in _cache.values()) > _CACHE_BYTES:
        _cache.popitem(last=False)


def _make_operands(task: Task, shape: Shape, data: str, rng: Generator) -> Operands:
    dtype = DTYPES[task.dtype]
    m, n, k = shape["M"], shape["N"], shape["K"]
    w = _values((m, k), data, rng, nonzero=True).astype(dtype.numpy)
    mask = _mask(task, (m, k), data, rng)
    x = _values((k, n), data, rng, nonzero=False)
    x *= _damping(data, k * task.structure.density((m, k)), DTYPES[task.out_dtype])
    _spread_rows(w, data, DTYPES[task.out_dtype], rng)
    if not mask.all():
        absent = dtype.numpy.type(-0.0 if data == "negative_zero" else 0.0)
        np.copyto(w, absent, where=~mask)
    x = x.astype(dtype.numpy)
    if data == "nonfinite":
        _poison(w, x, rng)
    added = _added(task, (m, n), data, rng)
    return Operands(task, w, np.asfortranarray(x) if task.x_layout == "col" else x, added)


def _added(task: Task, shape: tuple[int, int], data: str, rng: Generator) -> EpilogueOperands:
    """What the epilogue needs, finite whatever the data kind: of integers, integers; else of size 1."""
    kind = data if data in ("integers", "positive") else "normal"
    steps = task.epilogue
    bias = _values((shape[0],), kind, rng, nonzero=False) if "bias" in steps else None
    residual = _values(shape, kind, rng, nonzero=False) if "residual" in steps else None
    factor = float(rng.choice([0.5, 0.75, 1.5, 2.0])) if "scale" in steps else None
    return EpilogueOperands(
        bias=None if bias is None else bias.astype(DTYPES[task.dtype].numpy),
        residual=None if residual is None else residual.astype(DTYPES[task.out_dtype].numpy),
        factor=2.0 if factor is not None and data == "integers" else factor,
    )


def _values(shape: tuple[int, ...], data: str, rng: Generator, *, nonzero: bool) -> NDArray[np.float32]:
    """float32 values of a kind, before masking and rounding; `nonzero`: none of them is zero."""
    if data == "integers":
        sizes = rng.integers(1 if nonzero else 0, 3, shape, dtype=np.int8)
        signs = rng.choice(np.array([-1, 1], np.int8), shape)
        values: NDArray[np.float32] = (sizes * signs).astype(np.float32)
        return values
    if data in ("positive", "overflow"):
        return rng.random(shape, dtype=np.float32) * np.float32(0.75) + np.float32(0.25)
    values = rng.standard_normal(shape, dtype=np.float32)
    if nonzero:
        # a rounded zero would be a hole in the pattern; keep away from it
        tiny = np.abs(values) < 2.0**-12
        values[tiny] = np.float32(2.0**-12)
    elif data == "negative_zero":
        values[rng.random(shape, dtype=np.float32) < 0.25] = np.float32(-0.0)
    if data == "denormals" and nonzero:
        values = np.copysign(rng.integers(1, 1024, shape) * 2.0**-24, values).astype(np.float32)
    return values


def _mask(task: Task, shape: tuple[int, int], data: str, rng: Generator) -> NDArray[np.bool_]:
    """The pattern's mask, thinned for the awkward kinds; any subset of a pattern is in the pattern."""
    if data == "empty":
        return np.zeros(shape, np.bool_)
    mask = task.structure.mask(shape, rng)
    if data == "needle":
        candidates = np.flatnonzero(mask)
        chosen = candidates[int(rng.integers(len(candidates)))]
        mask = np.zeros(shape, np.bool_)
        mask.flat[chosen] = True
    if data == "awkward":
        full = int(rng.integers(shape[0]))
        thinned = mask & (rng.random(shape, dtype=np.float32) < 0.7)
        thinned[full] = mask[full]
        rows, columns = max(1, shape[0] // 3), max(1, shape[1] // 3)
        thinned[rows : 2 * rows, columns : 2 * columns] = False
        thinned[[0, -1]] = False
        return thinned
    return mask


def _damping(data: str, row_nnz: float, out: Dtype) -> np.float32:
    """Power of two on X that keeps |result| below a quarter of the output's largest value."""
    if data == "integers":
        return np.float32(1)
    if data == "overflow":
        return np.float32(_overflowing(out))
    peak = {"positive": row_nnz, "scaled": 2.0**10 * 8 * row_nnz**0.5}.get(data, 8 * row_nnz**0.5)
    return np.float32(min(1.0, 2.0 ** np.floor(np.log2(out.largest / 4 / max(peak, 1.0)))))


def _overflowing(out: Dtype) -> float:
    """A power of two whose square times any nonzero product of "overflow" values comes near the largest value."""
    return float(2.0 ** (np.ceil(np.log2(out.largest) / 2) + 1))


def _spread_rows(w: Array, data: str, out: Dtype, rng: Generator) -> None:
    """Per-row powers of two, in place: exact unless a value leaves the dtype's normal range."""
    rows = w.shape[0]
    if data == "scaled":
        w *= np.exp2(rng.choice([-10.0, 0.0, 10.0], rows)).astype(w.dtype)[:, None]
    if data == "overflow":
        # a few nonzeros in an even row exceed the largest value; odd rows stay far below it
        large = _overflowing(out)
        w *= np.where(np.arange(rows) % 2 == 0, large, 1 / large).astype(w.dtype)[:, None]


def _poison(w: Array, x: Array, rng: Generator) -> None:
    """A NaN and both infinities in X, an infinity in a nonzero of W."""
    for value in (np.nan, np.inf, -np.inf):
        x[int(rng.integers(x.shape[0])), int(rng.integers(x.shape[1]))] = value
    w.flat[int(rng.choice(np.flatnonzero(w)))] = np.inf
