"""`evo plot` on an archive with one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evo.archive import Archive
from evo.cli.group import cli
from evo.cli.plot import KINDS
from fitness.outcome import CompileFailed, Gate
from mutations.operator import Candidate, Plan
from tests.evo import archives


@pytest.fixture
def run_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return archives.make(Path("runs/archive.db")).id


def evo(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_plot_writes_beside_the_archive(run_id: str) -> None:
    code, out, _ = evo("plot", "nm24")
    assert code == 0
    folder = Path("runs") / run_id
    assert out.split() == [str(folder / f"plot.{kind}") for kind in ("png", "pdf", "svg", "csv")]
    assert all(Path(line).is_file() for line in out.split())


def test_plot_where_and_what_one_asks_for(run_id: str) -> None:
    code, out, _ = evo("plot", "--out", "figures", "--name", "fig1", "--format", "svg", "--json")
    assert code == 0
    assert json.loads(out) == {"run": run_id, "files": ["figures/fig1.svg", "figures/fig1.csv"]}


def test_plot_into_a_file_in_the_way(run_id: str) -> None:
    Path("figures").write_text(run_id, encoding="utf-8")
    code, _, err = evo("plot", "--out", "figures")
    assert code == 1
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["../out", "a/b", "..", ""])
@pytest.mark.usefixtures("run_id")
def test_the_name_of_a_plot_is_no_path(name: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, _, err = evo("plot", "nm24", "--name", name)
    assert code == 2
    assert "--out" in err
    assert sorted(tmp_path.rglob("*")) == before


def test_every_kind_at_once(run_id: str) -> None:
    code, out, err = evo("plot", run_id, "--kind", "all", "--out", "all", "--format", "svg")
    assert code == 0
    names = {Path(line).name for line in out.split()}
    assert names == {f"{kind}.{end}" for kind in KINDS if kind != "dollars" for end in ("svg", "csv")}
    assert err == f"evo: no dollars plot: run {run_id} spent nothing on a model; plot evaluations or seconds instead\n"
    assert evo("plot", "--kind", "all", "--name", "x")[0] == 2


def test_several_runs(run_id: str) -> None:
    other = archives.make(Path("runs/archive.db"), "other").id
    code, out, _ = evo("plot", run_id, other, "--out", "both", "--format", "svg", "--json")
    assert code == 0
    assert json.loads(out) == {"runs": [run_id, other], "files": ["both/plot.svg", "both/plot.csv"]}
    table = Path("both/plot.csv").read_text(encoding="utf-8")
    assert run_id in table
    assert other in table
    code, _, err = evo("plot", run_id, other, "--kind", "roofline")
    assert (code, err.count("\n")) == (1, 1)


def test_a_run_without_a_valid_candidate_says_what_is_there(run_id: str) -> None:
    with Archive.open("runs/archive.db") as archive:
        run = archives.empty(archive)
        archive.add_baseline(run.id, "gemm/dense", archives.timings(16.0, 32.0))
        for n in range(3):
            archive.add_entries(run.id, [Candidate(Plan(n, 0, 0, "seed"), archives.kernel(f"bad {n}"), "seed a/b: c")])
            archive.add_outcome(run.id, n, CompileFailed(Gate.COMPILE))
        archive.set_status(run.id, "failed")
        unborn = archives.empty(archive)
        archive.set_status(unborn.id, "failed")
    assert evo("plot", "nm24", "--json")[2] == "".join(
        f"evo: run {passed.id} has no valid candidate; passed over\n" for passed in (unborn, run)
    )
    code, out, err = evo("plot", run.id, "--kind", "all", "--format", "svg")
    assert code == 0
    assert {Path(line).stem for line in out.split()} == {"speedup", "validity", "phylogeny"}
    says = f"run {run.id} has no valid candidate (3 judged, 0 valid, 0 refused); evo plot {run.id} --kind validity"
    for kind in ("evaluations", "seconds", "roofline", "pareto", "credit", "shapes", "sweep"):
        assert f"evo: no {kind} plot: {says} shows what became of them\n" in err
    code, _, err = evo("plot", unborn.id)
    again = f"resume it: evo run nm24 --resume {unborn.id}"
    assert (code, err) == (1, f"evo: run {unborn.id} ended before its baseline was timed; {again}\n")
    assert f"run {unborn.id} has no candidate with a verdict; {again}" in evo("plot", unborn.id, "--kind", "credit")[2]
    assert run_id in evo("lineage", "nm24")[1]


def test_help_lists_the_kinds() -> None:
    _, out, _ = evo("plot", "--help")
    for kind, about in KINDS.items():
        assert kind in out
        assert about.split()[0] in out
