"""The conclusion: which format, why, and whether a sparse kernel can pay at all at this density and shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fitness.analysis.floors import Floor, paying_density
from fitness.analysis.sizes import Sizes, StoredSize
from fitness.gpu import Gpu
from fitness.matrices.mask import Mask

WORTH: Final = 1.5
"""Gain of the floors from which a sparse kernel can pay: none reaches its floor, while dense ones come near theirs."""
LITTLE: Final = 1.1

_TIE: Final = 1.1
_TIE_BYTES: Final = 1.25
_BY_WORK: Final = (
    "nm24", "nm", "rows", "channels", "bsr", "blocked_ell", "dia", "periodic", "ell", "sell", "csr", "bitmap",
    "csc", "coo",
)  # fmt: skip
"""Floors within 10 % are equal, if the format takes at most 1.25 times the least bytes; then that format counts whose
kernels work least for each element they multiply: those without indices, then an index for many elements, padded rows,
rows with pointers, and last what adds to Y singly."""


@dataclass(frozen=True)
class Advice:
    """What to do with a matrix.

    Attributes:
        format, options: the recommended storage; "dense" where sparse cannot pay.
        why: one sentence.
        gain: N -> floor of dense storage over the best sparse floor: the most a sparse kernel can gain.
        best: N -> the sparse format with the least floor.
        pays: "yes", "little" or "no".
        verdict: one sentence.
        paying: N -> density below which random nonzeros at this shape could gain 1.5x; 0 where none could.
    """

    format: str
    options: Mapping[str, str]
    why: str
    gain: Mapping[int, float]
    best: Mapping[int, str]
    pays: str
    verdict: str
    paying: Mapping[int, float]


def advise(mask: Mask, floors: Sequence[Floor], sizes: Sizes, dtype: str, gpu: Gpu) -> Advice:
    """Conclude from everything measured.

    Args:
        mask: the matrix.
        floors: of every format at every N.
        sizes: of every format.
        dtype: what the floors are for.
        gpu: likewise.
    """
    columns = sorted({floor.columns for floor in floors})
    sparse = [floor for floor in floors if floor.format != "dense"]
    gain = {n: max((floor.gain for floor in sparse if floor.columns == n), default=0.0) for n in columns}
    best = {n: _best(sparse, (n,), sizes) for n in columns}
    pays = (
        "no"
        if not mask.nnz
        else "yes"
        if max(gain.values()) >= WORTH
        else "little"
        if max(gain.values()) >= LITTLE
        else "no"
    )
    name = "dense" if pays == "no" else _best(sparse, [n for n in columns if gain[n] >= LITTLE], sizes)
    size = sizes.of(name)
    assert size is not None
    itemsize = (sizes.of("dense") or size).bytes // (mask.shape[0] * mask.shape[1])
    return Advice(
        format=name,
        options=size.options,
        why=_why(size, sizes, mask),
        gain=gain,
        best=best,
        pays=pays,
        verdict=_verdict(pays, gain, mask.density),
        paying={n: paying_density(mask.shape, itemsize, n, dtype, gpu, WORTH) for n in columns},
    )


def _best(floors: Sequence[Floor], columns: Sequence[int], sizes: Sizes) -> str:
    """The format with the least geometric mean floor; of nearly equal ones the first of `_BY_WORK`."""
    means: dict[str, float] = {}
    for name in dict.fromkeys(floor.format for floor in floors):
        times = [floor.time_us for floor in floors if floor.format == name and floor.columns in columns]
        means[name] = math.exp(sum(map(math.log, times)) / len(times))
    if not means:
        return "dense"
    near = [name for name, mean in means.items() if mean <= _TIE * min(means.values())]
    bytes_of = {size.format: size.bytes for size in sizes.stored}
    small = [name for name in near if bytes_of[name] <= _TIE_BYTES * min(bytes_of[other] for other in near)]
    return min(small, key=lambda name: (_BY_WORK.index(name) if name in _BY_WORK else len(_BY_WORK), means[name]))


def _why(size: StoredSize, sizes: Sizes, mask: Mask) -> str:
    dense = sizes.of("dense")
    assert dense is not None
    share = f"{size.bytes / dense.bytes:.1%} of the bytes of dense storage"
    fill = mask.nnz / size.slots if size.slots else 0.0
    if not mask.nnz:
        return "there are no nonzeros"
    if size.format == "dense":
        return f"at {mask.density:.1%} density no format has a floor that is {LITTLE - 1:.0%} lower"
    if size.format == "nm24":
        return f"every group of four along K has at most two nonzeros: sparse tensor cores, {share}"
    if size.format == "nm":
        return f"every group obeys {size.options.get('ratio', 'N:M')}: short indices, {share}"
    if "r" in size.options and "c" in size.options:
        return f"{size.options['r']} x {size.options['c']} blocks that are {fill:.0%} full: one index a block, {share}"
    if fill > 0.999:
        return f"it stores nonzeros only: {share}"
    return f"{fill:.0%} of what it stores is nonzero: {share}"


def _verdict(pays: str, gain: Mapping[int, float], density: float) -> str:
    if not density:
        return "no kernel is needed: there are no nonzeros, so the product is zero"
    most = max(gain.values())
    at = ", ".join(str(n) for n, value in gain.items() if value >= (WORTH if pays == "yes" else LITTLE))
    if pays == "no":
        return f"stay dense: at {density:.1%} density not even a perfect sparse kernel gains more than {most:.2f}x"
    if pays == "little":
        return f"hardly: a perfect sparse kernel gains {most:.2f}x at most (N = {at}); real ones lose more than that"
    return f"sparse can pay at N = {at}: a perfect kernel gains up to {most:.3g}x over perfect dense"
