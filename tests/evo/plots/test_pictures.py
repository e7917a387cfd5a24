"""Every kind of picture: the numbers it shows, readable at column width, the same bytes each time."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Text

from benchmarks.archive_scale import synthetic
from evo.archive import Archive, RunRecord
from evo.cli.plot import KINDS as HELP
from evo.errors import EvoError
from evo.plots import as_csv, picture, save
from evo.plots.hardware import PAIRS, Pareto, front_of
from evo.plots.phylogeny import heights_of
from evo.plots.progress import Group, Progress, RunCurve, band_of
from evo.report import series
from fitness.outcome import Gate
from tests.evo import archives

ONE = [kind for kind in series.KINDS if kind != "dollars"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs of made-up numbers, two of each name; 60 candidates each."""
    path = tmp_path_factory.mktemp("made") / "archive.db"
    synthetic(path, 240, 4, children=10, lines=3)
    with Archive.open(path) as archive:
        row = {"tokens_in": 1, "tokens_out": 1, "usd": 0.01}
        for run in archive.runs():
            archive.database.table("llm_calls").insert_all({"run_id": run.id, "n": n, **row} for n in range(11, 60, 3))
    return path


def drawn(path: Path, kind: str, count: int = 1) -> picture.Picture:
    with Archive.open(path, readonly=True) as archive:
        return series.KINDS[kind].make(archive, archive.runs()[:count])


def rows_of(shown: picture.Picture) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(shown.table()))))


CASES = [(kind, 1) for kind in series.KINDS] + [("speedup", 4), ("evaluations", 4), ("dollars", 2)]


@pytest.mark.parametrize(("kind", "count"), CASES)
def test_readable_at_column_width(made: Path, kind: str, count: int) -> None:
    shown = drawn(made, kind, count)
    with picture.style():
        figure = picture.figure_of(shown)
        figure.canvas.draw()
    assert figure.get_size_inches()[0] == picture.COLUMN_WIDTH_IN
    assert figure.get_size_inches()[1] <= 5.0
    words = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    for text in words:
        assert float(text.get_fontsize()) >= 6, text.get_text()
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    labels = [axis.label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) if axis.label.get_text()]
    legends = [text for legend in figure.legends for text in legend.get_texts()]
    assert any("H200" in title for title in titles)
    for text in (*labels, *legends):
        box = text.get_window_extent()
        assert figure.bbox.x0 - 1 <= box.x0, text.get_text()
        assert box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert figure.bbox.y0 - 1 <= box.y0, text.get_text()
    if kind != "validity":
        assert "modelled" in " ".join(text.get_text() for text in words), "the clock is named"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve experiments of two runs, eighteen operators, ten baselines, a failure at every gate."""
    path = tmp_path_factory.mktemp("crowded") / "archive.db"
    synthetic(path, 24 * 60, 24, children=10, lines=3)
    with Archive.open(path) as archive:
        sql = archive.database.execute
        for k, run in enumerate(archive.runs()):
            name = f"experiment_with_a_long_name_{k // 2}"
            changed = "experiment = json_set(experiment, '$.name', ?1, '$.task.pattern', json(?2))"
            pattern = f'{{"kind": "random", "density": {0.01 * (k // 2 + 1)}}}'
            sql(f"update runs set name = ?1, {changed} where id = ?3", [name, pattern, run.id])
        sql("update candidates set operator = 'operator_number_' || (n % 18) where generation > 0")
        same = "stage, clock, cold, process, t.time_us + 2 * value, t.time_us + 2 * value, t.time_us + 2 * value"
        sql(
            f"insert into timings select run_id, n, 'vendor_routine_' || value, position, shape, {same}, floor_us,"
            " tflops, gb_per_s, limiter, samples_us from timings t, json_each('[1,2,3,4,5,6,7,8,9]') where n is null"
        )
        for k, gate in enumerate(Gate):
            sql("update outcomes set stage = ? where fitness_us is null and n % ? = ?", [gate.name, len(Gate), k])
    return path


@pytest.mark.parametrize(
    ("kind", "count"),
    [("speedup", 24), ("evaluations", 24), ("sweep", 24), ("sweep", 1), ("credit", 1), ("validity", 1), ("shapes", 1)],
)
def test_many_curves_are_told_apart_and_leave_room_for_the_axes(crowded: Path, kind: str, count: int) -> None:
    shown = drawn(crowded, kind, count)
    with picture.style(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = picture.figure_of(shown)
        figure.canvas.draw()
    (axes,) = figure.axes
    legend = figure.legends[0].get_texts()
    for text in (*legend, axes.xaxis.label, axes.yaxis.label):
        box = text.get_window_extent()
        assert figure.bbox.x0 - 1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert figure.bbox.y0 - 1 <= box.y0 <= box.y1 <= figure.bbox.y1 + 1, text.get_text()
    assert axes.bbox.height / figure.dpi > 1.2
    lines, names = axes.get_legend_handles_labels()
    assert len(names) == len(legend) >= 8
    looks = [(line.get_color(), str(line.get_linestyle()), str(line.get_marker())) for line in lines
             if isinstance(line, Line2D)]  # fmt: skip
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("kind", ["evaluations", "roofline", "phylogeny"])
def test_the_same_bytes_each_time(made: Path, kind: str, tmp_path: Path) -> None:
    first, second = (
        save(drawn(made, kind, 4 if kind == "evaluations" else 1), tmp_path / name, formats=("png", "pdf", "svg"))
        for name in "ab"
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.fixture
def small() -> Archive:
    archive = Archive.memory()
    archives.fill(archive)
    return archive


def picture_of(archive: Archive, kind: str) -> list[dict[str, str]]:
    return rows_of(series.KINDS[kind].make(archive, archive.runs()[:1]))


def test_best_so_far(small: Archive) -> None:
    rows = picture_of(small, "evaluations")
    bests = pytest.approx([0.25, 2**0.5, 2.0, 2 * 2**0.5], rel=1e-5)
    assert [row["evaluations"] for row in rows] == ["1", "2", "3", "5"]  # the fourth failed
    assert [float(row["best_speedup"]) for row in rows] == bests
    assert [float(row["best_speedup"]) for row in picture_of(small, "seconds")] == bests


def test_roofline_points_are_below_the_roof(small: Archive, made: Path) -> None:
    rows = picture_of(small, "roofline")
    assert {row["role"] for row in rows} == {"seed", "candidate", "best", "baseline", "ceiling"}
    assert [row["n"] for row in rows if row["role"] == "best"] == ["5", "5"]
    assert len(rows) == 4 * 2 + 2 + 2
    ceilings = {row["shape"]: float(row["tflops"]) for row in rows if row["role"] == "ceiling"}
    for row in rows_of(drawn(made, "roofline")):
        if row["role"] != "ceiling":
            roof = min(ceilings["peak"], float(row["flop_per_byte"]) * ceilings["bandwidth_gb_per_s"] / 1e3)
            assert float(row["tflops"]) <= roof


def test_pareto(small: Archive) -> None:
    rows = picture_of(small, "pareto")
    assert {row["n"]: row["on_front"] for row in rows} == {"0": "0", "1": "0", "2": "0", "5": "1", "baseline": ""}
    assert [row["n"] for row in rows if row["is_best"] == "1"] == ["5"]
    points = [(0, 1.0, 3.0), (1, 2.0, 2.0), (2, 2.0, 2.0), (3, 3.0, 2.0), (4, 3.0, 1.0), (5, 1.0, 4.0)]
    assert front_of(np.array(points[::-1], PAIRS)).tolist() == [(0, 1.0, 3.0), (1, 2.0, 2.0), (4, 3.0, 1.0)]


def test_validity(small: Archive) -> None:
    first, second, third = picture_of(small, "validity")
    assert first == {"generation": "0", "valid (distinct)": "2", "refused": "0", "failed: compile": "0"}
    assert second == {"generation": "1", "valid (distinct)": "1", "refused": "1", "failed: compile": "1"}
    assert third["valid (distinct)"] == "1"


def test_credit(small: Archive) -> None:
    rows = picture_of(small, "credit")
    assert [(row["operator"], row["n"]) for row in rows] == [("tune", "2"), ("tune", "5")]
    assert [float(row["accumulated_factor"]) for row in rows] == [pytest.approx(2**0.5, rel=1e-5), pytest.approx(2)]


def test_bars_have_intervals(small: Archive) -> None:
    rows = picture_of(small, "shapes")
    best = [row for row in rows if row["series"].startswith("best over")]
    assert [(row["shape"], row["speedup"]) for row in best] == [("N=16", "2"), ("N=256", "4")]
    assert all(float(row["low"]) <= float(row["speedup"]) <= float(row["high"]) for row in best)
    assert [row["at_floor"] for row in rows] == ["4", "4", "4", "4"]
    assert all(float(row["speedup"]) <= float(row["at_floor"]) for row in rows)


def test_sweeps_over_size_and_density(small: Archive) -> None:
    rows = picture_of(small, "sweep")
    assert {row["series"] for row in rows} == {"gemm/dense_mma_pipelined", "best seed", "best", "roofline floor"}
    assert [(row["N"], row["time_us"]) for row in rows if row["series"] == "best"] == [("16", "8"), ("256", "8")]
    sparse = archives.fill(small, "sparse")
    task = dict(sparse.experiment["task"]) | {"pattern": {"kind": "nm", "n": 1, "m": 4}}
    small.set_experiment(sparse.id, dict(sparse.experiment) | {"task": task})
    swept = rows_of(series.KINDS["sweep"].make(small, small.runs()))
    assert [row["density"] for row in swept if row["series"] == "best"] == ["0.25", "0.5"]
    assert series.density({"kind": "block", "density": 0.2}) == 0.2
    assert series.density(None) == 1.0


def test_phylogeny_branches_do_not_cross() -> None:
    numbers, parents = np.array([0, 1, 2, 3, 7, 9]), np.array([-1, -1, 0, 1, 0, 2])
    heights = dict(zip((0, 1, 2, 3, 4, 5), heights_of(numbers, parents).tolist(), strict=True))
    assert sorted({heights[n] for n in (5, 4, 3)}) == [heights[5], heights[4], heights[3]]  # leaves, seed by seed
    assert heights[0] == (heights[2] + heights[4]) / 2


def test_a_band_over_runs() -> None:
    band = band_of([[(1, 1.0), (3, 4.0)], [(2, 1.0), (4, 2.0)]])
    assert list(band.x) == [2, 3, 4]
    assert list(band.mean) == pytest.approx([1.0, 2.0, 8**0.5])
    assert (band.low <= band.mean).all()
    assert (band.mean <= band.high).all()
    assert (band.low[-1], band.high[-1]) == pytest.approx((2.0, 4.0))


def test_the_axis_holds_every_curve_and_names_the_baseline() -> None:
    curves = {"slow": ((0.0, 0.9), (16.0, 2.3)), "fast": ((0.0, 16.0), (8.0, 21.0))}
    groups = tuple(Group(name, (RunCurve(name, points),)) for name, points in curves.items())
    (axes,) = picture.figure_of(Progress("2 runs, H200", "modelled", "generations", groups)).axes
    bottom, top = axes.get_ylim()
    assert bottom < 0.9
    assert top > 21.0
    assert axes.get_legend_handles_labels()[1] == ["slow", "fast", "baseline"]


@pytest.mark.parametrize(("count", "label"), [(2, "a (2 runs: mean, range)"), (3, "a (3 runs: mean, 95 %)")])
def test_the_band_of_two_runs_is_called_a_range(count: int, label: str) -> None:
    runs = tuple(RunCurve(str(i), ((0.0, 1.0 + i), (4.0, 2.0 + i))) for i in range(count))
    (axes,) = picture.figure_of(Progress("t", "modelled", "generations", (Group("a", runs),))).axes
    assert label in axes.get_legend_handles_labels()[1]
    band = band_of([run.points for run in runs[:2]])
    assert [*band.low, *band.high] == pytest.approx([1.0, 2.0, 2.0, 3.0])


def test_pareto_marks_the_best_and_counts_what_is_outside() -> None:
    points = np.array([(0, 8.0, 14.0), (1, 8.5, 13.0), (2, 9.0, 500.0), (3, 400.0, 15.0), (4, 10.0, 16.0)], PAIRS)
    (axes,) = picture.figure_of(Pareto("t", "x", "y", points, (11.0, 15.0), best=1)).axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert "2 slower, not shown" in lines
    assert lines["best"].get_marker() == "*"
    assert np.asarray(lines["best"].get_xydata()).tolist() == [[8.5, 13.0]]
    (axes,) = picture.figure_of(Pareto("t", "x", "y", points[[0, 1, 4]], best=1)).axes
    assert not any("not shown" in str(line.get_label()) for line in axes.get_lines())


def test_runs_that_do_not_go_together(small: Archive) -> None:
    run = small.runs()[0]
    measured = RunRecord(**{**vars(run), "clock": "measured"})
    for kind in ("speedup", "sweep"):
        with pytest.raises(EvoError, match="not shown in one plot"):
            series.KINDS[kind].make(small, [run, measured])
    with pytest.raises(EvoError, match="shows one run"):
        series.KINDS["roofline"].make(small, [run, run])
    with pytest.raises(EvoError, match="do not differ in density"):
        series.KINDS["sweep"].make(small, [run, run])


@pytest.mark.parametrize("kind", series.KINDS)
def test_an_empty_run_is_one_clear_line(kind: str) -> None:
    with Archive.memory() as archive:
        run = archives.empty(archive)
        with pytest.raises(EvoError) as error:
            series.KINDS[kind].make(archive, [run])
    assert run.id in str(error.value)


def test_the_help_lists_the_kinds() -> None:
    assert list(HELP) == list(series.KINDS)
