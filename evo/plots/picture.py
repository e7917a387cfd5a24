"""What all plots share: one column wide, colours told apart by the colour-blind, the same bytes each time.

One column of a two-column paper is 3.4 in wide; text stays at 6 pt or above at that size. Colours are Okabe and
Ito's (2008); what differs in colour differs in marker, dash or hatch too, so a grey print reads as well. Files of the
same numbers are the same bytes: no dates, no random ids, fonts that matplotlib brings.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np

from evo.words import plain
from evo.writing import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH_IN = 3.4
_DPI = 300
FORMATS = ("png", "pdf", "svg")

BLUE, VERMILION, GREY, GREEN, PURPLE, ORANGE, SKY, YELLOW = (
    "#0072B2", "#D55E00", "#5f5f5f", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442",
)  # fmt: skip
PALE = "#b4b4b4"
"""For what is there without being named."""
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1)), (0, (8, 2)), ":")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oo", "||||", "**")
FLOOR = "roofline floor"
"""How the bound that the card sets is called wherever it is drawn."""
MANY = 3000
"""From so many marks on they are drawn as pixels in PDF and SVG too, which would grow to megabytes."""

_STYLE: Any = {  # matplotlib types the keys as literals
    "font.family": "DejaVu Sans",
    "font.size": 7.0,
    "axes.linewidth": 0.6,
    "axes.titlesize": 7.0,
    "legend.fontsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.fonttype": "path",
    "svg.hashsalt": "evo",
    "agg.path.chunksize": 10_000,  # a line of 300,000 points is drawn in parts: at once it takes 60 MB
}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True)
class Table:
    """Numbers behind a picture: column names and rows, to go through once; None is an empty cell."""

    header: tuple[str, ...]
    rows: Iterable[tuple[object, ...]]


class Picture(Protocol):
    """Something that can be drawn one column wide."""

    @property
    def height_in(self) -> float:
        """Height of the figure, inches."""

    def draw(self, figure: Figure) -> None:
        """Draw into an empty figure of `COLUMN_WIDTH_IN` x `height_in`."""

    def table(self) -> Table:
        """Every number that is drawn."""


def as_csv(table: Table) -> str:
    """Comma-separated values; floats with six significant digits."""
    text = io.StringIO()
    _write_csv(table, text)
    return text.getvalue()


def _write_csv(table: Table, file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([_cell(value) for value in row] for row in table.rows)


def save(picture: Picture, folder: Path, name: str = "plot", formats: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """Draw into `folder`/`name`.<format> ("png", "pdf", "svg") and write the numbers to `name`.csv.

    Returns:
        The files written, the CSV last.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with style():
        figure = _laid_out(figure_of(picture))
        for kind in formats:
            path = folder / f"{name}.{kind}"
            with whole(path) as unfinished:
                figure.savefig(unfinished, format=kind, dpi=_DPI, metadata=_METADATA[kind])
            written.append(path)
    path = folder / f"{name}.csv"
    with whole(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        _write_csv(picture.table(), file)
    return [*written, path]


def as_svg(picture: Picture) -> str:
    """The picture as one SVG element, for an HTML page; without comments, which would carry texts as they are."""
    text = io.StringIO()
    with style():
        _laid_out(figure_of(picture)).savefig(text, format="svg", metadata=_METADATA["svg"])
    drawn = text.getvalue()
    return re.sub(r"\s*<!--.*?-->", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)


def _laid_out(figure: Figure) -> Figure:
    """The figure with everything in its place: otherwise each file draws all marks once more to find out where."""
    figure.set_dpi(_DPI)
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    return figure


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Our settings alone: a user's matplotlibrc must not change the bytes."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def figure_of(picture: Picture) -> Figure:
    """The drawn figure, at column width."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN_WIDTH_IN, picture.height_in), layout="constrained")
    FigureCanvasAgg(figure)
    picture.draw(figure)
    _show_names(figure)
    return figure


def _show_names(figure: Figure) -> None:
    """Show names as they are: they come from an archive, which may be somebody else's, and are no formulas.

    The labels of ticks are left alone: those of powers are formulas.
    """
    from matplotlib.axis import Tick
    from matplotlib.text import Text

    ticks = {label for tick in figure.findobj(Tick) for label in (tick.label1, tick.label2)}
    for text in figure.findobj(Text):
        if text not in ticks:
            text.set_text(plain(text.get_text()))
            text.set_parse_math(False)


def tick_name(name: str) -> str:
    """A name as the label of a tick, as it is."""
    return plain(name).replace("$", r"\$")


def axes_of(figure: Figure, title: str, x: str, y: str, *, grid: str = "y") -> Axes:
    """Axes with our title, labels, grid and open frame."""
    axes = figure.add_subplot()
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if grid:
        axes.grid(axis=grid, linewidth=0.3, color="#d9d9d9")  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def legend_below(figure: Figure, axes: Axes, columns: int | None = None) -> None:
    """The legend under the axes, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        found = sorted(zip(handles, labels, strict=True), key=lambda entry: entry[1] == FLOOR)  # bounds come last
        handles, labels = [handle for handle, _ in found], [label for _, label in found]
        columns = legend_columns(labels, columns)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, handlelength=1.8)


def legend_columns(labels: Sequence[str], most: int | None = None) -> int:
    """Columns of a legend of these labels, as many as there is room for and no more than `most`, all about as long."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    size = _STYLE["legend.fontsize"]
    font = FontProperties(family=_STYLE["font.family"], size=size)
    wide = [TextToPath().get_text_width_height_descent(plain(label), font, False)[0] + 4.6 * size for label in labels]
    room = 72 * COLUMN_WIDTH_IN + 2 * size  # 4.6: a line, a gap, and what is between columns, one less of these
    fits = [n for n in range(1, min(len(labels), most or len(labels)) + 1)
            if sum(max(column) for column in np.array_split(wide, n)) <= room]  # fmt: skip
    return -(-len(labels) // -(-len(labels) // max(fits, default=1)))  # as many rows, none shorter than it must be


def legend_height(labels: Sequence[str], most: int | None = None) -> float:
    """Inches that a legend takes beyond two rows, which every figure has room for."""
    rows = -(-len(labels) // legend_columns(labels, most)) if labels else 0
    return 0.155 * max(0, rows - 2)


def look(index: int) -> dict[str, Any]:
    """Colour, dash and marker of the index-th curve, other ones for each of 49."""
    turn = index // len(COLOURS)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[(index + turn) % len(DASHES)],
        "marker": MARKERS[(index + turn) % len(MARKERS)],
    }


def factor_axis(axis: Any, low: float, high: float) -> None:
    """Ticks of a logarithmic axis as factors: 1/4, 1/2, 1, 2, 4; finer where it spans less than three octaves."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    octaves = high / low
    if octaves < 2.2:
        step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if (high - low) / s <= 6 or s == 0.5)
        first = int(low / step) + 1
        axis.set_major_locator(FixedLocator([round(step * k, 4) for k in range(first, first + 8) if step * k <= high]))
    elif octaves < 8:
        axis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.25, 1.5, 1.75) if octaves < 2.5 else (1.0, 1.5)))
    else:
        axis.set_major_locator(LogLocator(base=2, numticks=8))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(factor if octaves >= 8 else decimal))


def factor(value: float, _position: int = 0) -> str:
    """4.0 -> "4", 0.5 -> "1/2", 0.0093 -> "1/108"."""
    return f"{value:g}" if value >= 1 else f"1/{1 / value:.3g}"


def decimal(value: float, _position: int = 0) -> str:
    """1.5 -> "1.5"."""
    return f"{value:g}"


def _cell(value: object) -> object:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value
