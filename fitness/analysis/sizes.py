"""Bytes and slots of a matrix in every registered format, with the options that make it smallest.

A format says itself how many bytes it takes. Where a matrix is large, options are chosen on some of its rows, and only
formats that come near the smallest are asked about the whole; the others' sizes are scaled up and marked as estimates.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.formats import FORMATS, Format, FormatError, get_format
from fitness.formats.entries import Entries, EntryFormat
from fitness.formats.format import complete
from fitness.formats.ordering import ROW_ORDERS
from fitness.matrices.mask import STRIP_ROWS, Mask

_ALL_OPTIONS_NONZEROS: Final = 2**14  # so many nonzeros are tried with every option
_EXACT_NONZEROS: Final = 2**24
_DENSE_ELEMENTS: Final = 2**27  # formats that take a dense array get one up to here
_SAMPLE_ELEMENTS: Final = 2**20
_ORDERED_LINES: Final = 2**19  # with more rows or columns none are reordered to choose options: that alone takes long
_NEAR: Final = 1.5  # of the smallest: such formats are asked about the whole matrix


@dataclass(frozen=True)
class StoredSize:
    """A matrix in one format.

    Attributes:
        format, options: which; options complete.
        bytes: of all arrays; slots: elements it stores, zeros among them.
        by_element: True if it stores nonzeros only, so that kernels need not multiply zeros.
        exact: False where both are scaled up from some of the rows.
    """

    format: str
    options: Mapping[str, str]
    bytes: int
    slots: float
    by_element: bool
    exact: bool


@dataclass(frozen=True)
class Sizes:
    """Every format: its size, or why it cannot store the matrix."""

    stored: tuple[StoredSize, ...]
    refused: Mapping[str, str]

    def of(self, name: str) -> StoredSize | None:
        """The size in a format, None where it is refused."""
        return next((size for size in self.stored if size.format == name), None)


class MaskEntries(Entries):
    """The entries of a mask, all ones, made only when a format looks at them.

    Args:
        mask: where they are; dtype: of the ones.
        places: False to refuse to say where they are, only how many are in each row.
    """

    def __init__(self, mask: Mask, dtype: np.dtype[Any], *, places: bool = True) -> None:
        object.__setattr__(self, "_known", places)
        object.__setattr__(self, "_mask", mask)
        object.__setattr__(self, "_dtype", dtype)
        object.__setattr__(self, "shape", mask.shape)

    _known: bool
    _mask: Mask
    _dtype: np.dtype[Any]

    @functools.cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not self._known:
            raise _UnknownPlacesError
        indptr, indices = self._mask.to_csr()
        return np.repeat(np.arange(self.shape[0]), np.diff(indptr)), indices.astype(np.int64)

    @property
    def rows(self) -> NDArray[np.int64]:
        """(nnz,)."""
        return self._places[0]

    @property
    def columns(self) -> NDArray[np.int64]:
        """(nnz,)."""
        return self._places[1]

    @functools.cached_property
    def values(self) -> NDArray[Any]:
        """(nnz,) ones."""
        return np.ones(len(self.rows), self._dtype)

    @property
    def nnz(self) -> int:
        """How many."""
        return self._mask.nnz

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return self._dtype.itemsize

    @functools.cached_property
    def row_counts(self) -> NDArray[np.int64]:
        """(M,) nonzeros of each row."""
        return self._mask.row_counts


class _UnknownPlacesError(Exception):
    """A format looked at single places where they are not given."""


def sizes_of(mask: Mask, dtype: np.dtype[Any], *, reorder: bool = True) -> Sizes:
    """The matrix in every format of the registry.

    Args:
        mask: where it is nonzero.
        dtype: of the values it will have on the GPU.
        reorder: False to leave rows and columns as they are, where no order can gain anything.
    """
    reorder = reorder and max(mask.shape) <= _ORDERED_LINES
    by_entry, by_dense = _samples(mask)
    elements = mask.shape[0] * mask.shape[1]
    plain = StoredSize(
        "dense", complete(get_format("dense"), {}), elements * dtype.itemsize, elements, by_element=False, exact=True
    )
    chosen: dict[str, StoredSize] = {"dense": plain}
    refused: dict[str, str] = {}
    for name in FORMATS:
        if name == "dense":
            continue
        storage = get_format(name)
        try:
            if reason := storage.supports(dtype):
                raise FormatError(reason)
            sample = by_entry if _is_by_entry(storage) else by_dense
            chosen[name] = _smallest(storage, sample, mask, dtype, reorder=reorder)
        except FormatError as error:
            refused[name] = str(error)
    least = min(size.bytes for size in chosen.values())
    for name, size in list(chosen.items()):
        if size.exact:
            continue
        try:
            chosen[name] = _whole(get_format(name), size, mask, dtype, near=size.bytes <= _NEAR * least)
        except FormatError as error:  # some rows fit the format, others do not
            del chosen[name]
            refused[name] = str(error)
    return Sizes(tuple(sorted(chosen.values(), key=lambda size: size.bytes)), refused)


def _smallest(storage: Format, sample: Mask, mask: Mask, dtype: np.dtype[Any], *, reorder: bool) -> StoredSize:
    """The options with the least bytes for a sample, scaled up; raises FormatError where none can store it."""
    entries = MaskEntries(sample, dtype)
    dense = None if _is_by_entry(storage) else _dense(sample, dtype)
    problems: list[FormatError] = []

    @functools.cache
    def size_with(choices: tuple[str, ...]) -> float:
        try:
            return _bytes(
                storage, complete(storage, dict(zip(_free(storage.name), choices, strict=True))), entries, dense
            )
        except FormatError as error:
            problems.append(error)
            return math.inf

    offered = tuple(storage.options[option] for option in _free(storage.name))
    if not reorder:
        offered = tuple(options[:1] if _is_order(options) else options for options in offered)
    choices = _descend(offered, size_with)
    size = size_with(choices)
    if size == math.inf:
        raise problems[0]
    options = complete(storage, dict(zip(_free(storage.name), choices, strict=True)))
    scale = mask.nnz / sample.nnz if sample.nnz else 1.0
    slots = _slots(storage, options, sample, int(size), dtype)
    if sample is not mask:  # what is there without any nonzero grows with the shape, not with the nonzeros
        size = (size - _fixed(storage, options, sample, dtype)) * scale + _fixed(storage, options, mask, dtype)
    by_element = _by_element(storage.name)
    return StoredSize(storage.name, options, round(size), slots * scale, by_element, exact=sample is mask)


def _fixed(storage: Format, options: dict[str, str], mask: Mask, dtype: np.dtype[Any]) -> int:
    """Bytes without nonzeros: arrays with an item for each row or column; 0 for formats that take a dense array."""
    if not isinstance(storage, EntryFormat):
        return 0
    nothing = np.empty(0, np.int64)
    return int(storage.entry_bytes(Entries(mask.shape, nothing, nothing, nothing.astype(dtype)), options))


def _descend(choices: tuple[tuple[str, ...], ...], size_with: Callable[[tuple[str, ...]], float]) -> tuple[str, ...]:
    """One option after the other set to its best choice until none gets better; all combinations if none fits.

    Begun twice: at the defaults, and where options that reorder rows or columns take their last choice: an order may be
    worth it with other block sizes only.
    """
    starts = {
        tuple(options[0] for options in choices),
        tuple(options[-1] if _is_order(options) else options[0] for options in choices),
    }
    found = min((_descend_from(start, choices, size_with) for start in sorted(starts)), key=size_with)
    return found if size_with(found) < math.inf else min(itertools.product(*choices), key=size_with)


def _is_order(options: tuple[str, ...]) -> bool:
    """True for the choices of an option that reorders rows or columns."""
    return len(options) > 1 and set(options) <= set(ROW_ORDERS)


def _descend_from(
    current: tuple[str, ...],
    choices: tuple[tuple[str, ...], ...],
    size_with: Callable[[tuple[str, ...]], float],
) -> tuple[str, ...]:
    before = math.nan
    while before != size_with(current):
        before = size_with(current)
        for i, options in enumerate(choices):
            current = min(((*current[:i], choice, *current[i + 1 :]) for choice in options), key=size_with)
    return current


def _whole(storage: Format, size: StoredSize, mask: Mask, dtype: np.dtype[Any], *, near: bool) -> StoredSize:
    """The size asked of the whole matrix where that is cheap or the format is near the smallest."""
    if not isinstance(storage, EntryFormat):
        return _whole_dense(storage, size, mask, dtype) if near else size
    entries = MaskEntries(mask, dtype, places=near and mask.nnz <= _EXACT_NONZEROS)
    try:
        exact = _bytes(storage, dict(size.options), entries, None)
    except _UnknownPlacesError:
        return size
    fixed = _fixed(storage, dict(size.options), mask, dtype)
    ratio = (exact - fixed) / (size.bytes - fixed) if size.bytes > fixed else 1.0
    slots = mask.nnz if size.by_element else size.slots * ratio
    return dataclasses.replace(size, bytes=exact, slots=slots, exact=True)


def _whole_dense(storage: Format, size: StoredSize, mask: Mask, dtype: np.dtype[Any]) -> StoredSize:
    w = _dense(mask, dtype)
    storage.validate(w, size.options)
    return dataclasses.replace(size, bytes=storage.bytes(w, size.options), exact=True)


def _bytes(storage: Format, options: dict[str, str], entries: MaskEntries, dense: NDArray[Any] | None) -> int:
    if isinstance(storage, EntryFormat):
        storage.check(entries, options)
        return int(storage.entry_bytes(entries, options))
    assert dense is not None
    storage.validate(dense, options)
    return int(storage.bytes(dense, options))


def _slots(storage: Format, options: dict[str, str], sample: Mask, size: int, dtype: np.dtype[Any]) -> float:
    """Elements a sample takes in a format: counted where it is small, else what its bytes could hold."""
    if _by_element(storage.name):
        return sample.nnz
    if sample.shape[0] * sample.shape[1] <= _SAMPLE_ELEMENTS:
        return float(np.count_nonzero(storage.stored_mask(_dense(sample, dtype), options)))
    return size / dtype.itemsize


def _dense(mask: Mask, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Ones and zeros, (M, K); raises FormatError beyond 2^27 elements."""
    if mask.shape[0] * mask.shape[1] > _DENSE_ELEMENTS:
        raise FormatError("the matrix is too large to be laid out densely, as this format needs")
    return mask.window(slice(0, mask.shape[0]), slice(0, mask.shape[1])).astype(dtype)


def _samples(mask: Mask) -> tuple[Mask, Mask]:
    """Rows to choose options on: with few nonzeros, and with few elements; the matrix itself where it has so few."""
    elements = mask.shape[0] * mask.shape[1]
    few = mask if mask.nnz <= _ALL_OPTIONS_NONZEROS else _sampled(mask, _ALL_OPTIONS_NONZEROS / mask.nnz)
    small = mask if elements <= _SAMPLE_ELEMENTS else _sampled(mask, _SAMPLE_ELEMENTS / elements)
    return few, small


def _is_by_entry(storage: Format) -> bool:
    """True for formats that are made from entries, False for those that take a dense array."""
    return isinstance(storage, EntryFormat)


def _sampled(mask: Mask, share: float) -> Mask:
    """About that share of the rows, one strip of 64 at least: strips evenly spread."""
    groups = -(-mask.shape[0] // STRIP_ROWS)
    wanted = min(groups, max(1, int(groups * share)))
    starts = np.unique(np.linspace(0, groups - 1, wanted).astype(np.int64)) * STRIP_ROWS
    rows = np.concatenate([np.arange(start, min(mask.shape[0], start + STRIP_ROWS)) for start in starts])
    if mask.bits is not None:
        return Mask((len(rows), mask.shape[1]), None, None, mask.bits[rows])
    lengths = mask.row_counts[rows]
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    assert mask.indptr is not None
    assert mask.indices is not None
    places = np.repeat(mask.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
    return Mask((len(rows), mask.shape[1]), indptr, mask.indices[places], None)


# -- what a format is like, found out on a small matrix ---------------------------------------------------------------


@functools.cache
def _free(name: str) -> tuple[str, ...]:
    """The options that decide how many bytes it takes or what it can store; the others keep their defaults."""
    storage = get_format(name)
    return tuple(option for option in storage.options if _decides(storage, option))


def _decides(storage: Format, option: str) -> bool:
    """True if a choice of an option takes other bytes than the default, or can store what the default cannot."""
    for w in _probes():
        found = [_probed(storage, w, complete(storage, {option: choice})) for choice in storage.options[option]]
        if any(size not in (found[0], math.inf) for size in found[1:]):
            return True
    return False


def _probed(storage: Format, w: NDArray[np.float16], options: dict[str, str]) -> float:
    try:
        storage.validate(w, options)
    except FormatError:
        return math.inf
    return storage.bytes(w, options)


@functools.cache
def _by_element(name: str) -> bool:
    """True for a format that stores nonzeros only, so that kernels need not multiply zeros."""
    storage = get_format(name)
    options = complete(storage, {})
    for w in _probes():
        try:
            storage.validate(w, options)
        except FormatError:
            continue
        return bool((storage.stored_mask(w, options) == (w != 0)).all())
    return False


def _probes() -> Iterator[NDArray[np.float16]]:
    """Small matrices: random, at most one nonzero in sixteen, a repeated tile, nothing but zeros in most rows."""
    rng = np.random.default_rng(0)
    yield (rng.random((192, 320)) < 0.03).astype(np.float16)
    yield np.kron(np.ones((96, 20)), np.eye(1, 16, 3)).astype(np.float16)
    yield np.tile(rng.random((8, 32)) < 0.2, (16, 10)).astype(np.float16)
