"""The plot: numbers, files, determinism, and that it is readable at column width."""

from __future__ import annotations

import csv
import io
import itertools
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from matplotlib.text import Text

from evo import plots
from evo.plots import History, SeedLine, picture, speedup

POINTS = [(0, 0.5), (0, 1.0), (0, None), (1, 2.0), (1, 1.0), (1, 3.0), (2, None), (3, 2.5)]


@pytest.fixture
def history() -> History:
    seeds = (SeedLine("scalar", 0.5), SeedLine("mma_sp", 1.0), SeedLine("mma_fragment", 1.01))
    title = "spmm 2:4 float16 4096x4096, N = 16, 256, H200"
    return History(title, "gemm/dense_mma_pipelined", "modelled", plots.summarise(POINTS), seeds, 4.0)


def test_summarise_keeps_the_best_of_the_whole_history() -> None:
    generations = plots.summarise(POINTS)
    assert [g.number for g in generations] == [0, 1, 2, 3]
    assert [g.best for g in generations] == [1.0, 3.0, 3.0, 3.0]
    assert [(g.judged, g.valid) for g in generations] == [(3, 2), (3, 3), (1, 0), (1, 1)]


def test_summarise_takes_quartiles_of_valid_candidates_only() -> None:
    first, second, third, _ = plots.summarise(POINTS)
    assert (first.low, first.median, first.high) == (0.625, 0.75, 0.875)
    assert (second.low, second.median, second.high) == (1.5, 2.0, 2.5)
    assert third.median is None


def test_summarise_of_nothing() -> None:
    assert plots.summarise([]) == ()


def test_csv_holds_every_number(history: History) -> None:
    rows = list(csv.DictReader(io.StringIO(plots.as_csv(history.table()))))
    assert [row["name"] for row in rows if row["kind"] == "generation"] == ["0", "1", "2", "3"]
    assert rows[1]["best"] == "3"
    assert rows[2]["median"] == ""
    assert [row["name"] for row in rows if row["kind"] == "seed"] == ["scalar", "mma_sp", "mma_fragment"]
    assert rows[-1]["kind"] == "floor"
    assert float(rows[-1]["best"]) == 4.0


def test_files_are_the_same_bytes_each_time(history: History, tmp_path: Path) -> None:
    formats = ("png", "pdf", "svg")
    first = plots.save(history, tmp_path / "a", formats=formats)
    second = plots.save(history, tmp_path / "b", formats=formats)
    assert [path.name for path in first] == ["plot.png", "plot.pdf", "plot.svg", "plot.csv"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_a_users_matplotlib_settings_change_nothing(history: History, tmp_path: Path) -> None:
    import matplotlib as mpl

    (reference, _) = plots.save(history, tmp_path / "a", formats=("png",))
    with mpl.rc_context({"font.size": 20.0, "axes.facecolor": "red"}):
        (changed, _) = plots.save(history, tmp_path / "b", formats=("png",))
        assert mpl.rcParams["font.size"] == 20.0
    assert reference.read_bytes() == changed.read_bytes()


def test_readable_at_column_width(history: History) -> None:
    with picture.style():
        figure = picture.figure_of(history)
        figure.canvas.draw()
    assert figure.get_size_inches()[0] == picture.COLUMN_WIDTH_IN
    page = figure.bbox
    (axes,) = figure.axes
    (legend,) = figure.legends
    texts = [*axes.texts, *legend.get_texts(), axes.xaxis.label, axes.yaxis.label]
    texts += [text for text in axes.findobj(Text) if text.get_text() == axes.get_title(loc="left")]
    assert len(texts) == 3 + 2 + 4 + 3  # seeds, marks, legend, axes and title
    for text in texts:
        assert float(text.get_fontsize()) >= 6, text.get_text()
        box = text.get_window_extent()
        assert page.x0 <= box.x0, text.get_text()
        assert box.x1 <= page.x1, text.get_text()
    for label in axes.get_yticklabels():
        assert float(label.get_fontsize()) >= 6


def test_says_units_clock_baseline_and_seeds(history: History) -> None:
    words = " ".join(text.get_text() for text in picture.figure_of(history).findobj(Text))
    for word in ("modelled time", "×", "generation", "gemm/dense_mma_pipelined", "mma_sp", "roofline floor", "median"):
        assert word in words


def test_names_of_close_seeds_do_not_overlap() -> None:
    heights = speedup._apart([0.0, 0.01, 0.02, 5.0], 1.0)
    assert all(b - a >= 1.0 - 1e-9 for a, b in itertools.pairwise(heights))
    assert heights[3] == 5.0
    assert sum(heights[:3]) == pytest.approx(0.03)


@pytest.mark.parametrize("points", [[], [(0, None)], [(0, 1.0)], [(0, 1e-3), (1, 1e3)]])
def test_draws_whatever_there_is(points: list[tuple[int, float | None]], tmp_path: Path) -> None:
    history = History("t", "b", "modelled", plots.summarise(points), ())
    assert plots.save(history, tmp_path)[0].stat().st_size > 1000


@pytest.mark.parametrize("floor", [1e-6, 0.02, 1.0, 1e9])
def test_a_run_without_a_valid_candidate_has_room_for_its_axes(floor: float, tmp_path: Path) -> None:
    history = History("t", "b", "modelled", plots.summarise([(0, None), (1, None)]), (), floor)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plots.save(history, tmp_path)
    (axes,) = picture.figure_of(history).axes
    bottom, top = axes.get_ylim()
    assert bottom < floor < top


@pytest.mark.parametrize("last", [1, 16, 1000])
def test_no_marker_is_cut_off_at_the_ends(last: int) -> None:
    seeds = (SeedLine("mma_sp_fragment", 1.0),)
    history = History("t", "b", "modelled", plots.summarise((g, 1.0) for g in range(last + 1)), seeds)
    with picture.style():
        figure = picture.figure_of(history)
        figure.canvas.draw()
    (axes,) = figure.axes
    (best,) = (line for line in axes.get_lines() if line.get_label() == "best so far")
    radius = (best.get_markersize() + best.get_markeredgewidth()) / 2 * figure.dpi / 72
    ends = axes.transData.transform([(0, 1.0), (last, 1.0)])[:, 0]
    assert axes.bbox.x0 <= ends[0] - radius
    assert ends[1] + radius <= axes.bbox.x1


def test_importing_does_not_import_matplotlib() -> None:
    code = "import sys, evo.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("best", "ticks"), [(2.0, ["1", "1.5", "2"]), (64.0, ["1", "4", "16"])])
def test_ticks_read_as_factors(best: float, ticks: list[str]) -> None:
    history = History(
        "t", "b", "modelled", plots.summarise([(0, 0.5), (1, best)] if best > 2 else [(0, 1.0), (1, best)]), ()
    )
    with picture.style():
        figure = picture.figure_of(history)
        figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert [label for label in labels if label in ticks] == ticks
    assert picture.factor(0.25, 0) == "1/4"


def test_seeds_far_below_the_best_do_not_squash_the_axis() -> None:
    seeds = (SeedLine("scalar", 1 / 108), SeedLine("vector", 1 / 90), SeedLine("mma", 1.0))
    history = History("t", "b", "modelled", plots.summarise([(0, 1 / 108), (1, 2.0)]), seeds)
    with picture.style():
        (axes,) = picture.figure_of(history).axes
    bottom, top = axes.get_ylim()
    assert bottom > 1 / 20
    words = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert bottom <= words["scalar 1/108"] < words["vector 1/90"] < words["mma"] < top


@pytest.mark.parametrize(("low", "high"), [(1 / 50, 2.0), (1.9, 2.0), (2.0, 2.0)])
@pytest.mark.parametrize("count", [15, 16, 40, 300])
def test_of_many_seeds_the_fastest_are_named(count: int, low: float, high: float) -> None:
    """Beside the axes, one below the other, without a warning."""
    seeds = tuple(SeedLine(f"seed_{n}", low * (high / low) ** (n / (count - 1))) for n in range(count))
    shown = History("title", "base", "modelled", plots.summarise(POINTS), seeds, 4.0)
    with picture.style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = picture.figure_of(shown)
        figure.canvas.draw()
    (axes,) = figure.axes
    names = [text for text in axes.texts if text.get_text().startswith("seed_")]
    expected = count if count == 15 else 10
    fastest = sorted(seeds, key=lambda seed: (seed.speedup, seed.label))[-expected:]
    assert {name.get_text().partition(" ")[0] for name in names} == {seed.label for seed in fastest}
    places = sorted((Text.get_window_extent(name) for name in names), key=lambda place: place.y0)  # without its line
    middles = [(place.y0 + place.y1) / 2 for place in places]
    assert axes.bbox.y0 - 1 <= middles[0] <= middles[-1] <= axes.bbox.y1 + 1
    assert all(above.y0 > below.y0 + 5 for below, above in itertools.pairwise(places))
    lines = [line for line in axes.get_lines() if line.get_linestyle() != "-" and len(set(line.get_ydata())) == 1]  # type: ignore[arg-type]
    assert len(lines) >= count


def test_a_run_without_a_valid_candidate_says_so() -> None:
    for points, says in (([(0, None), (1, None)], "no valid candidate among 2"), ([], "no candidate judged")):
        with picture.style():
            figure = picture.figure_of(History("title", "base", "modelled", plots.summarise(points), (), 4.0))
        assert says in [text.get_text() for text in figure.axes[0].texts]
