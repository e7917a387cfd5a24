"""Operands of a task made from a seed: W and X in logical form, packed as formats want them, and their product.

W depends on task, M, K, data kind and seed, X on task, N, K, data kind and seed: shapes that differ in N only
share W, all it is packed into, and whatever a cache of the processor still holds of it.
"""

from __future__ import annotations

import weakref
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fitness.dtypes import DTYPES, Dtype
from fitness.epilogue import Operands as EpilogueOperands
from fitness.formats import get_format
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

_CACHE_BYTES: Final = 320 * 2**20
_ROWS_AT_ONCE: Final = 512  # float32 values of all of W would take twice its memory


@dataclass(frozen=True, eq=False)
class Weights:
    """W (M, K), quantised to the task's dtype, and what it determines."""

    w: Array
    _packed: dict[FormatChoice, dict[str, Array]] = field(default_factory=dict, repr=False)

    def packed(self, choice: FormatChoice) -> dict[str, Array]:
        """Stored in a format with complete options, packed once; read-only arrays by name ("values")."""
        if choice not in self._packed:
            options = {name: str(option) for name, option in choice.options.items()}
            self._packed[choice] = get_format(choice.name).pack(self.w, options)
            for array in self._packed[choice].values():
                array.flags.writeable = False
        return self._packed[choice]

    def sizes(self, choice: FormatChoice) -> dict[str, int]:
        """The integers that a format with complete options adds, by name ("W.nblocks")."""
        storage = get_format(choice.name)
        options = {name: str(option) for name, option in choice.options.items()}
        measured = storage.measure(self.packed(choice), (self.w.shape[0], self.w.shape[1]), options)
        return {f"W.{name}": value for name, value in measured.items()}

    @property
    def held_bytes(self) -> int:
        """Memory of W and of all it is packed into."""
        arrays = {id(a): a.nbytes for stored in self._packed.values() for a in stored.values()} | {
            id(self.w): self.w.nbytes
        }
        return sum(arrays.values())

    @cached_property
    def finite(self) -> bool:
        """No NaN or infinity."""
        return _finite(self.w)

    @cached_property
    def row_nnz(self) -> NDArray[np.int64]:
        """Nonzeros of each row, (M,); -0.0 is a zero."""
        counts: NDArray[np.int64] = np.count_nonzero(self.w, axis=1)
        return counts


@dataclass(frozen=True, eq=False)
class Operands:
    """W (M, K) and X (K, N) in logical form, quantised to the task's dtype, and what they determine.

    All results are computed once, when first asked for.
    """

    task: Task
    weights: Weights
    x: Array
    added: EpilogueOperands

    @property
    def w(self) -> Array:
        """W, (M, K)."""
        return self.weights.w

    def buffers(self, choice: FormatChoice) -> dict[str, Array]:
        """W packed in a format with complete options, and the rest in the task's layouts; read-only arrays."""
        return {**{f"W.{name}": array for name, array in self.weights.packed(choice).items()}, **self._laid_out}

    @cached_property
    def _laid_out(self) -> dict[str, Array]:
        """`X`, and `bias` and `residual`, the latter in the layout of Y; one NaN each where the epilogue has none."""
        bias, residual = self.added.bias, self.added.residual
        if bias is None:
            bias = np.full(1, np.nan, DTYPES[self.task.dtype].numpy)
        if residual is None:
            residual = np.full(1, np.nan, DTYPES[self.task.out_dtype].numpy)
        elif self.task.y_layout == "col":
            residual = residual.T
        x = self.x.T if self.task.x_layout == "col" else self.x
        arrays = {"X": np.ascontiguousarray(x), "bias": bias, "residual": np.ascontiguousarray(residual)}
        for array in arrays.values():
            array.flags.writeable = False
        return arrays

    @property
    def own_bytes(self) -> int:
        """Memory it holds or will hold beside the weights.

        Reference, scale and limits of the criterion take 25 bytes a result.
        """
        return int(self.x.nbytes + self.added.nbytes + 25 * self.w.shape[0] * self.x.shape[1])

    @cached_property
    def finite(self) -> bool:
        """No NaN or Inf in either operand; the reference then does not depend on the format."""
        return self.weights.finite and _finite(self.x)

    @cached_property
    def nnz(self) -> int:
        """Nonzeros of W."""
        return int(np.sum(self.row_nnz))

    @property
    def row_nnz(self) -> NDArray[np.int64]:
        """Nonzeros of each row of W, (M,)."""
        return self.weights.row_nnz

    @cached_property
    def reference(self) -> NDArray[np.float64]:
        """The result in float64, epilogue included, (M, N). Finite operands only."""
        return self.task.chain.apply(self.task.operation.reference(self.w, self.x, None), self.added)

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """sqrt((W*W) @ (X*X)), (M, N), carried through the epilogue."""
        return self.task.chain.error_scale(self.task.operation.scale(self.w, self.x), self.added)


def _finite(values: Array) -> bool:
    """No NaN or infinity among them."""
    rows = (values[first : first + _ROWS_AT_ONCE] for first in range(0, len(values), _ROWS_AT_ONCE))
    return all(bool(np.isfinite(part.astype(np.float32)).all()) for part in rows)


# -- making and keeping -----------------------------------------------------------------------------------------------

_cache: OrderedDict[tuple[object, ...], Operands] = OrderedDict()
#: Weights live as long as operands in the cache (or a case) use them.
_weights: weakref.WeakValueDictionary[tuple[object, ...], Weights] = weakref.WeakValueDictionary()


def operands(task: Task, shape: Shape, data: str, seed: int) -> Operands:
    """The operands of these arguments: the same arguments, the same bytes. Made once, then from the cache.

    Raises:
        ValueError: unknown data kind.
    """
    if data not in DATA:
        raise ValueError(f"data = {data!r} is not one of {DATA}")
    m, n, k = shape["M"], shape["N"], shape["K"]
    key = (task.fingerprint, m, n, k, data, seed)
    if key not in _cache:
        w = _weights.get((task.fingerprint, m, k, data, seed))
        if w is None:
            w = Weights(_make_w(task, m, k, data, _generator(task, data, seed, 0, m, k)))
            _weights[(task.fingerprint, m, k, data, seed)] = w
        x = _make_x(task, m, n, k, data, _generator(task, data, seed, 1, n, k))
        added = _added(task, (m, n), data, _generator(task, data, seed, 2, m, n, k))
        _cache[key] = Operands(task, w, x, added)
    _cache.move_to_end(key)
    return _cache[key]


def trim_cache() -> None:
    """Drop the least recently used until all kept ones are below `_CACHE_BYTES`; the latest is always kept."""
    while len(_cache) > 1 and _held_bytes() > _CACHE_BYTES:
        _cache.popitem(last=False)


def _held_bytes() -> int:
    weights = {id(kept.weights): kept.weights.held_bytes for kept in _cache.values()}
    return sum(weights.values()) + sum(kept.own_bytes for kept in _cache.values())


def _generator(task: Task, data: str, seed: int, *what: int) -> Generator:
    entropy = [int(task.fingerprint[:8], 16), zlib.crc32(data.encode()), seed, *what]
    return np.random.default_rng(np.random.SeedSequence(entropy))


def _make_w(task: Task, m: int, k: int, data: str, rng: Generator) -> Array:
    dtype = DTYPES[task.dtype]
    w = np.empty((m, k), dtype.numpy)
    for first in range(0, m, _ROWS_AT_ONCE):
        rows = w[first : first + _ROWS_AT_ONCE]
        rows[:] = _values(rows.shape, data, rng, nonzero=True)
    mask = _mask(task, (m, k), data, rng)
    _spread_rows(w, data, DTYPES[task.out_dtype], rng)
    if not mask.all():
        absent = dtype.numpy.type(-0.0 if data == "negative_zero" else 0.0)
        np.copyto(w, absent, where=~mask)
    if data == "nonfinite":
        w.flat[int(rng.choice(np.flatnonzero(w)))] = np.inf
    return w


def _make_x(task: Task, m: int, n: int, k: int, data: str, rng: Generator) -> Array:
    x = _values((k, n), data, rng, nonzero=False)
    x *= _damping(data, k * task.structure.density((m, k)), DTYPES[task.out_dtype])
    x = x.astype(DTYPES[task.dtype].numpy)
    if data == "nonfinite":
        for value in (np.nan, np.inf, -np.inf):
            x[int(rng.integers(k)), int(rng.integers(n))] = value
    return np.asfortranarray(x) if task.x_layout == "col" else x


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
