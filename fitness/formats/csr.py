"""Compressed sparse rows: the nonzeros of each row one after another, with their columns.

* `values[nnz]`: nonzeros, row by row, ascending in column within a row (-0.0 is a zero and is not stored).
* `indices[nnz]` int32: their columns.
* `indptr[M + 1]` int32: stored row i is `values[indptr[i]]` up to `values[indptr[i + 1]]`.
* `row_order[M]` int32: stored row i is row `row_order[i]` of W.

Option `order`: "natural", where row_order[i] = i, or "length": longest rows first (equal ones in their order), so
that the rows a warp or block takes together have nearly the same number of nonzeros and the longest start first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.expressions import Expression
from fitness.formats.format import Array, FormatError, Options, Shape

MAX_NNZ: Final = 2**31 - 1
"""Positions of nonzeros are int32."""


class Csr:
    """Compressed sparse rows; arguments `W.values`, `W.indices`, `W.indptr`, `W.row_order` (see the module)."""

    name = "csr"
    options: Mapping[str, tuple[str, ...]] = {"order": ("natural", "length")}

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """`values`, `indices`, `indptr`, `row_order`."""
        return ("values", "indices", "indptr", "row_order")

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """The four arrays; raises FormatError beyond 2^31 - 1 nonzeros."""
        self.validate(w, options)
        counts = np.count_nonzero(w, axis=1)
        order = np.arange(w.shape[0])
        if options["order"] == "length":
            order = np.argsort(-counts, kind="stable")
            w, counts = w[order], counts[order]
        rows, columns = np.nonzero(w)
        return {
            "values": np.ascontiguousarray(w[rows, columns]),
            "indices": columns.astype(np.int32),
            "indptr": row_pointers(counts),
            "row_order": order.astype(np.int32),
        }

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:  # noqa: ARG002
        """The (M, K) operand."""
        w = np.zeros(shape, arrays["values"].dtype)
        rows = np.repeat(arrays["row_order"], np.diff(arrays["indptr"]))
        w[rows, arrays["indices"]] = arrays["values"]
        return w

    def validate(self, w: Array, options: Options) -> None:  # noqa: ARG002
        """Any matrix with at most 2^31 - 1 nonzeros."""
        check_matrix(w, self.name, int(np.count_nonzero(w)))

    def bytes(self, w: Array, options: Options) -> int:  # noqa: ARG002
        """A value and a column for each nonzero, a pointer and a row for each row, one pointer more."""
        return int(np.count_nonzero(w)) * (int(w.itemsize) + 4) + 4 * (2 * int(w.shape[0]) + 1)

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """The nonzeros."""
        stored: NDArray[np.bool_] = w != 0
        return stored

    def domain(self, options: Options) -> tuple[Expression, ...]:  # noqa: ARG002
        """Any shape."""
        return ()

    def supports(self, dtype: np.dtype[Any]) -> str:  # noqa: ARG002
        """Any dtype."""
        return ""


def row_pointers(counts: Array) -> NDArray[np.int32]:
    """(rows,) lengths -> (rows + 1,) starts: 0, then the running sum."""
    pointers = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def check_matrix(w: Array, name: str, stored: int) -> None:
    """Raise FormatError unless `w` is a matrix of which the format stores fewer than 2^31 items."""
    if w.ndim != 2:
        raise FormatError(f"{name} stores a matrix, not an array of {w.ndim} dimensions")
    if stored > MAX_NNZ:
        raise FormatError(f"{name} counts what it stores in int32, at most {MAX_NNZ}; this operand has {stored}")
