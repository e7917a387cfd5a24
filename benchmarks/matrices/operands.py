"""Operands of a sparse product that were never dense, in the form that cases are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.correctness import Tolerance
from fitness.epilogue import Operands as Added
from fitness.formats import FormatError, get_format
from fitness.formats.entries import Entries, EntryFormat
from fitness.formats.format import complete
from fitness.kernel import FormatChoice
from fitness.matrices import Mask
from fitness.task import Task

MOST_DENSE: Final = 2**26
"""Elements up to which formats that take a dense array get one."""
TOO_LARGE: Final = 8.0
"""Formats that take so many times the bytes of CSR are not tried: it is known how that ends."""
CHECKED_ROWS: Final = 512


class SparseWeights:
    """W from a mask, values drawn from a seed, packed by the formats themselves."""

    def __init__(self, mask: Mask, seed: int = 0) -> None:
        indptr, indices = mask.to_csr()
        rows = np.repeat(np.arange(mask.shape[0]), np.diff(indptr))
        values = np.random.default_rng(seed).standard_normal(mask.nnz, dtype=np.float32)
        values[np.abs(values) < 2.0**-12] = 2.0**-12  # a zero would be a hole in the pattern
        self.entries = Entries(mask.shape, rows, indices.astype(np.int64), values)
        self._packed: dict[FormatChoice, dict[str, NDArray[Any]]] = {}
        self._refused: dict[FormatChoice, str] = {}

    def packed(self, choice: FormatChoice) -> dict[str, NDArray[Any]]:
        """The arrays of a format, packed once.

        Raises:
            FormatError: it cannot store W, or would be far larger than CSR.
        """
        if choice in self._refused:
            raise FormatError(self._refused[choice])
        if choice not in self._packed:
            try:
                self._packed[choice] = self._made(choice)
            except FormatError as error:
                self._refused[choice] = str(error)
                raise
        return self._packed[choice]

    def pack_all(self, choices: Iterable[FormatChoice]) -> None:
        """Pack W in all of these, as `fitness.inputs.case_of` will ask for them; what cannot be is noted."""
        for choice in choices:
            named = {name: str(option) for name, option in choice.options.items()}
            with contextlib.suppress(FormatError, MemoryError):
                self.packed(FormatChoice(choice.name, dict(complete(get_format(choice.name), named))))

    def _made(self, choice: FormatChoice) -> dict[str, NDArray[Any]]:
        storage, options = get_format(choice.name), {name: str(value) for name, value in choice.options.items()}
        if isinstance(storage, EntryFormat):
            storage.check(self.entries, options)
            self._allow(storage.entry_bytes(self.entries, options))
            return storage.packed(self.entries, options)
        if self.entries.shape[0] * self.entries.shape[1] > MOST_DENSE:
            raise FormatError("it takes a dense array, and W is too large for one")
        w = self.entries.dense()
        storage.validate(w, options)
        self._allow(storage.bytes(w, options))
        return storage.pack(w, options)

    def _allow(self, size: int) -> None:
        compressed = 8 * self.entries.nnz + 8 * self.entries.shape[0] + 2**16
        if size > TOO_LARGE * compressed:
            raise FormatError(f"it takes {size / compressed:.3g} times the bytes of CSR")

    def sizes(self, choice: FormatChoice) -> dict[str, int]:
        """The integers that a format adds."""
        storage, options = get_format(choice.name), {name: str(value) for name, value in choice.options.items()}
        measured = storage.measure(self.packed(choice), self.entries.shape, options)
        return {f"W.{name}": value for name, value in measured.items()}


@dataclass(eq=False)
class SparseOperands:
    """W and X (K, N) for `fitness.inputs.case_of`, with a check of results on some rows.

    Attributes:
        task: spmm or spmv in float32.
        weights: W; x: (K, N) float32.
    """

    task: Task
    weights: SparseWeights
    x: NDArray[np.float32]
    added: Added = field(default_factory=Added)

    @property
    def w(self) -> Any:
        """Stands for W where only its shape is asked for."""
        return SimpleNamespace(shape=self.weights.entries.shape)

    @property
    def nnz(self) -> int:
        """Nonzeros."""
        return self.weights.entries.nnz

    @property
    def row_nnz(self) -> NDArray[np.int64]:
        """(M,) nonzeros of each row."""
        return self.weights.entries.row_counts

    @cached_property
    def _laid_out(self) -> dict[str, NDArray[Any]]:
        x = self.x.T if self.task.x_layout == "col" else self.x
        nothing = np.full(1, np.nan, np.float32)
        return {"X": np.ascontiguousarray(x), "bias": nothing, "residual": nothing.copy()}

    def buffers(self, choice: FormatChoice) -> dict[str, NDArray[Any]]:
        """W packed, X in the task's layout, and what an epilogue would need."""
        return {**{f"W.{name}": array for name, array in self.weights.packed(choice).items()}, **self._laid_out}

    @cached_property
    def _expected(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Rows looked at, the float64 result there, and what it may be off by (fitness.correctness)."""
        from scipy.sparse import csr_array

        entries = self.weights.entries
        rng = np.random.default_rng(1)
        longest = np.argsort(-entries.row_counts)[:8]
        some = rng.choice(entries.shape[0], min(CHECKED_ROWS, entries.shape[0]), replace=False)
        rows = np.unique(np.concatenate([some, longest, [0, entries.shape[0] - 1]]))
        indptr = np.concatenate([[0], np.cumsum(entries.row_counts)])
        w = csr_array((entries.values.astype(np.float64), entries.columns, indptr), shape=entries.shape)[rows]
        met, columns = np.unique(w.indices, return_inverse=True)  # rows of X that these rows of W meet
        w = csr_array((w.data, columns, w.indptr), shape=(len(rows), len(met)))
        wide = self.x[met].astype(np.float64)
        reference = w @ wide
        squares = w.copy()
        squares.data **= 2
        scale = np.maximum(np.sqrt(np.mean(reference**2, axis=1, keepdims=True)), np.sqrt(squares @ wide**2))
        limit = Tolerance.of(self.task, entries.shape[1])
        allowed = 1.01 * limit.unit_roundoff * np.abs(reference) + limit.tau * scale + limit.eta
        return rows, reference, allowed

    def wrong(self, y: NDArray[Any]) -> str:
        """What is wrong with a result in the task's layout; empty if nothing is on the rows looked at."""
        rows, reference, allowed = self._expected
        y = y.T if self.task.y_layout == "col" else y
        error = np.abs(y[rows].astype(np.float64) - reference)
        bad = ~(error <= allowed)
        if not bad.any():
            return ""
        i, j = (int(place) for place in np.argwhere(bad)[0])
        return (
            f"row {rows[i]}, column {j} is {y[rows[i], j]:.6g}, not {reference[i, j]:.6g}; {bad.sum()} elements wrong"
        )
