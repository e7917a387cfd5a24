"""An analysis for a person: one matrix in full, many as a table with a line each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from evo.analysis.job import Result, printable
from fitness.analysis.lengths import Lengths
from fitness.analyze import Analysis

_BARS = " ▁▂▃▄▅▆▇█"
_SHOWN_RATIOS = ((1, 2), (2, 4), (1, 4), (4, 8), (2, 8), (8, 16))
_SHOWN_BLOCKS = ((4, 4), (8, 8), (16, 16), (32, 32), (64, 64), (16, 1), (1, 16))


def in_full(result: Result) -> list[Text]:
    """Some twenty lines on one matrix: what it is, what it could be stored in, and whether that pays."""
    found = result.analysis
    lines = [
        ("matrix", f"{result.title} ({result.kind})"),
        ("shape", f"{found.shape[0]} x {found.shape[1]}, {found.nnz} nonzeros, density {percent(found.density)}"),
        ("values", _values(found)),
        ("rows", _lengths(found.rows)),
        ("", _histogram(found.rows)),
        ("columns", _lengths(found.columns)),
        ("", _histogram(found.columns)),
        ("padding", f"{found.padding:.2f}x in slices of 32 rows padded to their longest"),
        ("N:M", _ratios(found)),
        ("blocks", _blocks(found)),
        ("diagonals", _diagonals(found)),
        ("repeats", _repetition(found)),
        *_reordering(found),
        *_floors(found),
        ("format", f"{_stored(found)}: {found.advice.why}"),
        ("verdict", found.advice.verdict),
    ]
    return [Text(f"{name:<10} {line}") for name, line in lines]


def as_table(results: Sequence[Result]) -> Table:
    """A line for each matrix."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    several = len({result.path for result in results}) > 1
    for name in ("matrix", "shape", "density", "imbalance", "2:4", "full blocks", "format", "gain up to", "pays"):
        table.add_column(name, justify="left" if name in ("matrix", "format", "pays") else "right", overflow="fold")
    for result in results:
        found = result.analysis
        whole = found.blocks.whole()
        name = f"{result.path.name} {result.name}".rstrip() if several else result.name or result.path.name
        table.add_row(
            Text(printable(name)),
            f"{found.shape[0]}x{found.shape[1]}",
            percent(found.density),
            f"{found.rows.imbalance:.3g}",
            percent(found.ratios.share(2, 4)),
            f"{whole[0]}x{whole[1]}" if whole else "-",
            found.advice.format,
            f"{max(found.advice.gain.values()):.3g}x",
            found.advice.pays,
        )
    return table


def percent(share: float) -> str:
    """0.5 -> "50 %", 0.00049 -> "0.049 %"; nothing that is not all is called 100 %."""
    if 0.9995 < share < 1:
        return "99.9 %"
    return f"{100 * share:.3g} %"


def _values(found: Analysis) -> str:
    text = f"{found.dtype} in the file, {found.gpu_dtype} on the {found.gpu}"
    if found.stored_zeros and found.density < 1 and found.stored_zeros < found.shape[0] * found.shape[1] - found.nnz:
        text += f"; {found.stored_zeros} zeros are stored"
    return text + (f"; {found.duplicates} entries were added to others" if found.duplicates else "")


def _lengths(lengths: Lengths) -> str:
    return (
        f"{lengths.mean:.4g} nonzeros each on average, {lengths.least} to {lengths.most}, "
        f"imbalance {lengths.imbalance:.3g}, {lengths.empty} of {lengths.lines} empty"
    )


def _histogram(lengths: Lengths) -> str:
    most = max(lengths.counts)
    bars = "".join(_BARS[-(-8 * count // most)] for count in lengths.counts)
    return f"|{bars}| 0, 1, 2, 4, ... {lengths.edges[-2]} and more nonzeros"


def _ratios(found: Analysis) -> str:
    ratios = found.ratios
    exact = [f"{n}:{m}" for n, m in _SHOWN_RATIOS if ratios.share(n, m) == 1 and n < m]
    shares = ", ".join(f"{n}:{m} {percent(ratios.share(n, m))}" for n, m in _SHOWN_RATIOS)
    text = f"share of groups along K: {shares}"
    if exact and found.nnz:
        text += f"; exact: {', '.join(exact)}"
    if ratios.share(2, 4) < 1 and ratios.share_across(2) == 1:
        text += "; 2:4 is exact along M: store the transpose"
    return text


def _blocks(found: Analysis) -> str:
    blocks = found.blocks
    fills = ", ".join(f"{r}x{c} {percent(blocks.fill((r, c)))}" for r, c in _SHOWN_BLOCKS)
    text = f"fill {fills}"
    whole = blocks.whole()
    text += f"; full up to {whole[0]}x{whole[1]}" if whole else ""
    return text + (f" (from {percent(blocks.sampled)} of the nonzeros)" if blocks.sampled < 1 else "")


def _diagonals(found: Analysis) -> str:
    diagonals = found.diagonals
    if not diagonals.occupied:
        return "none"
    text = (
        f"{diagonals.occupied} occupied, {percent(diagonals.fill)} full, {diagonals.lower} below to "
        f"{diagonals.upper} above the main one; the 32 fullest hold {percent(diagonals.fullest)}"
    )
    return text + (f"; {diagonals.triangular} triangular" if diagonals.triangular else "")


def _repetition(found: Analysis) -> str:
    repeats = found.repetition
    parts = [f"{repeats.distinct_rows} different rows, the commonest is {percent(repeats.commonest)} of them"]
    if repeats.stencil is not None and repeats.stencil > 0.5:
        parts.append(f"{percent(repeats.stencil)} of the rows have the same offsets from the diagonal")
    if repeats.period_rows:
        parts.append(f"period {repeats.period_rows} along M")
    if repeats.period_columns:
        parts.append(f"period {repeats.period_columns} along K")
    return "; ".join(parts)


def _reordering(found: Analysis) -> list[tuple[str, str]]:
    reordering = found.reordering
    if reordering.skipped:
        return [("reordering", f"not tried: {reordering.skipped}")]
    lines = []
    for i, order in enumerate(reordering.orders):
        fills = ", ".join(f"{r}x{c} {percent(fill)}" for (r, c), fill in order.fill.items())
        name = order.name.replace("_", " ")
        lines.append(("reordering" if i == 0 else "", f"{name:<22} padding {order.padding:.2f}x, fill {fills}"))
    return lines


def _floors(found: Analysis) -> list[tuple[str, str]]:
    """The floors of dense storage and of the best formats, and what single nonzeros could do at this shape."""
    columns = sorted({floor.columns for floor in found.floors})
    best = list(dict.fromkeys(("dense", found.advice.format, *found.advice.best.values())))
    lines = [("floors", f"{'':<12} " + " ".join(f"{f'N = {n}':>10}" for n in columns) + "   us; bytes of W")]
    for name in best:
        times = [floor.time_us for floor in found.floors if floor.format == name]
        size = found.sizes.of(name)
        assert size is not None
        about = "" if size.exact else "about "
        lines.append(("", f"{name:<12} " + " ".join(f"{time:>10.4g}" for time in times) + f"   {about}{size.bytes}"))
    gains = " ".join(f"{found.advice.gain[n]:>9.3g}x" for n in columns)
    lines.append(("", f"{'gain up to':<12} {gains}"))
    paying = " ".join(f"{percent(found.advice.paying[n]):>10}" for n in columns)
    lines.append(("", f"{'pays below':<12} {paying}   density of random nonzeros at this shape"))
    return lines


def _stored(found: Analysis) -> str:
    options = {name: choice for name, choice in found.advice.options.items() if found.advice.format != "dense"}
    text = ", ".join(f"{name} = {choice}" for name, choice in options.items())
    return f"{found.advice.format} ({text})" if text else found.advice.format
