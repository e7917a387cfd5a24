"""Dense storage: every element of W, zeros too, in an order of choice.

`values`, by option `order`:

* "row": [M][K], row-major, leading dimension K.
* "fragment": [Mp/16][Kp/16][32][8], M and K padded to multiples of 16 with zeros: for each 16 x 16 tile and each lane
  of a warp the 8 values of that lane's A operand of `mma.m16n8k16` for 16-bit types, registers a0..a3 in order, so that
  a lane reads a whole 16-byte vector (as in the format `bsr`).
* "tile": [Mp/r][Kp/c][r][c], M and K padded to multiples of the options `r` and `c`: each tile contiguous, row-major.

Options `r` and `c` count for "tile" only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fitness.formats.blocks import grid, ordered, row_major
from fitness.formats.format import Array, BaseFormat, FormatError, Options, Shape


class Dense(BaseFormat):
    """W as it is. Stores any pattern; every slot is stored, so 0 * Inf of X gives NaN."""

    name = "dense"
    options: Mapping[str, tuple[str, ...]] = {
        "order": ("row", "fragment", "tile"),
        "r": ("64", "16", "32", "128"),
        "c": ("64", "16", "32", "128"),
    }

    def argument_names(self, options: Options) -> tuple[str, ...]:  # noqa: ARG002
        """One array: `values`."""
        return ("values",)

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """`values` in the chosen order; raises FormatError for an array that is no matrix."""
        self.validate(w, options)
        if options["order"] == "row":
            return {"values": np.ascontiguousarray(w)}
        (r, c), (down, across) = _tile(options), grid((w.shape[0], w.shape[1]), _tile(options))
        padded = np.pad(w, ((0, down * r - w.shape[0]), (0, across * c - w.shape[1])))
        tiles = padded.reshape(down, r, across, c).transpose(0, 2, 1, 3).reshape(-1, r, c)
        if options["order"] == "tile":
            return {"values": np.ascontiguousarray(tiles).reshape(down, across, r, c)}
        return {"values": ordered(tiles, "fragment").reshape(down, across, 32, 8)}

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand."""
        if options["order"] == "row":
            return arrays["values"].reshape(shape)
        (r, c), (down, across) = _tile(options), grid(shape, _tile(options))
        tiles = row_major(arrays["values"], (r, c), "row" if options["order"] == "tile" else "fragment")
        padded = tiles.reshape(down, across, r, c).transpose(0, 2, 1, 3).reshape(down * r, across * c)
        return padded[: shape[0], : shape[1]].copy()

    def validate(self, w: Array, options: Options) -> None:  # noqa: ARG002
        """Every matrix is dense."""
        if w.ndim != 2:
            raise FormatError(f"dense stores a matrix, not an array of {w.ndim} dimensions")

    def bytes(self, w: Array, options: Options) -> int:
        """All elements, padding included."""
        if options["order"] == "row":
            return w.size * w.itemsize
        (r, c), (down, across) = _tile(options), grid((w.shape[0], w.shape[1]), _tile(options))
        return down * r * across * c * w.itemsize

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:  # noqa: ARG002
        """True everywhere, (M, K)."""
        return np.ones(w.shape, dtype=np.bool_)


def _tile(options: Options) -> tuple[int, int]:
    return (16, 16) if options["order"] == "fragment" else (int(options["r"]), int(options["c"]))
