"""`evo lineage` on an archive with one run; REFs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from evo.archive import Archive
from evo.cli import options
from evo.cli.group import cli
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


@pytest.mark.parametrize("ref", ["best", "5", "{run}", "{run}/5", "{run}/best", "nm24", None])
def test_the_path_runs_from_the_seed_to_the_best(run_id: str, ref: str | None) -> None:
    code, out, _ = evo("lineage", *([ref.format(run=run_id)] if ref else []))
    assert code == 0
    assert re.findall(r"^#(\d+)", out, re.MULTILINE) == ["1", "2", "5"]
    for words in (
        f"{run_id}/5: spmm 2:4 float16 4096x4096, N = 16, 256, H200; times are modelled",
        "baseline  gemm/dense_mma_pipelined: 16 us, 32 us",
        "seed, generation 0: 16 us, 16 us; 1.41x baseline",
        "tune, generation 1, of #1: 8 us, 16 us; 2.00x baseline",
        "BM 32 -> 64",
        "BM: 32 -> 64",
        "confirmed at 2.83x baseline",
    ):
        assert words in out


def test_a_changed_source_is_shown_as_a_diff(run_id: str) -> None:
    with Archive.open("runs/archive.db") as archive:
        changed = archives.kernel("mma, unrolled", BM=64)
        child = Candidate(Plan(6, 3, 0, "splice", (5, 0)), changed, "unrolled")
        archive.add_entries(run_id, [child])
        archive.add_outcome(run_id, 6, archives.timed("e", 8.0, 8.0))
    _, out, _ = evo("lineage", "6")
    assert "splice, generation 3, of #5 and #0" in out
    assert "source: 1 lines added, 1 removed" in out
    assert '+about  = "mma, unrolled"' in out
    assert "+about" not in evo("lineage", "6", "--no-diff")[1]


def test_a_failed_candidate_says_why(run_id: str) -> None:
    _, out, _ = evo("lineage", f"{run_id}/3")
    assert "CompileFailed at gate compile: __shfl is not there" in out


def test_json_holds_the_whole_path(run_id: str) -> None:
    story = json.loads(evo("lineage", "best", "--json")[1])
    assert story["run"] == run_id
    assert [step["n"] for step in story["path"]] == [1, 2, 5]
    assert story["path"][2]["changed"] == {"BM": [32, 64]}
    assert story["path"][2]["time_us"] == [8.0, 8.0]
    assert story["path"][2]["confirmed"] == "confirmed"
    assert story["baseline"]["time_us"] == [16.0, 32.0]


def test_dot_draws_all_parents(run_id: str) -> None:
    graph = evo("lineage", f"{run_id}/3", "--dot")[1]
    assert graph.startswith("digraph lineage {")
    assert "n0 -> n3 [penwidth=2, style=solid]" in graph
    assert "n1 -> n3 [penwidth=1, style=dashed]" in graph
    assert graph.count("label=") == 3


def test_two_formats_at_once_are_refused(run_id: str) -> None:
    assert evo("lineage", run_id, "--dot", "--json")[0] == 2


@pytest.mark.parametrize(
    ("ref", "words"),
    [("nm42", "did you mean"), ("99", "has no candidate 99; its candidates: 0 to 5"), ("{run}/x", "is no candidate")],
)
def test_a_wrong_ref_is_one_clear_line(run_id: str, ref: str, words: str) -> None:
    for command in ("lineage", "plot"):
        code, out, err = evo(command, ref.format(run=run_id))
        assert code == 1
        assert out == ""
        assert len(err.splitlines()) == 1
        assert words in err


@pytest.mark.parametrize("command", ["lineage", "plot"])
def test_no_archive_yet(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "SHIPPED_ARCHIVES", ())
    monkeypatch.chdir(tmp_path)
    code, _, err = evo(command, "best")
    assert code == 1
    assert err == "evo: archive runs/archive.db does not exist; run an experiment first, or give one with --archive\n"
    assert list(tmp_path.iterdir()) == []


def test_another_archive(run_id: str) -> None:
    Path("runs/archive.db").rename("mine.db")
    code, out, _ = evo("lineage", "best", "--archive", "mine.db", "--json")
    assert code == 0
    assert json.loads(out)["run"] == run_id


def test_the_tree_marks_the_answer(run_id: str) -> None:
    _, out, _ = evo("lineage", run_id, "--tree")
    assert [int(n) for n in re.findall(r"#(\d+) (?:seed|tune|splice)", out)] == [0, 3, 4, 1, 2, 5]
    assert re.search(r"#5 tune .*<- the answer", out)
    assert {node["n"] for node in json.loads(evo("lineage", "2", "--tree", "--json")[1])["nodes"]} == {1, 2, 5}


def test_any_two_are_compared(run_id: str) -> None:
    other = archives.make(Path("runs/archive.db"), "other").id
    _, out, _ = evo("lineage", f"{other}/0", "--against", f"{run_id}/5")
    assert "BM: 64 -> 16" in out
    assert '-about  = "mma"' in out
    data = json.loads(evo("lineage", "5", "--against", "2", "--json")[1])
    assert data["changed"] == {"BM": [32, 64]}
    assert evo("lineage", "5", "--against", "4")[0] == 1


def test_blame_and_statistics(run_id: str) -> None:
    _, out, _ = evo("lineage", "best", "--blame")
    assert re.search(r"^#1 +seed +seed +\d+ lines; BN = 8", out, re.MULTILINE)
    assert re.search(r"^#5 +tune +1.414x +0 lines; BM = 64", out, re.MULTILINE)
    data = json.loads(evo("lineage", "best", "--blame", "--json")[1])
    assert data["params"]["BM"] == {"value": 64, "origin": 5}
    _, out, _ = evo("lineage", run_id, "--stats")
    assert re.search(r"^tune +3 +1 +2 +0 +2 +2 +2 +1.414x +1.414x", out, re.MULTILINE)
    assert {o["name"] for o in json.loads(evo("lineage", "--stats", "--json")[1])["operators"]} == {
        "seed", "tune", "splice"
    }  # fmt: skip


def test_graphs(run_id: str) -> None:
    assert "n2 --> n5" in evo("lineage", run_id, "--mermaid")[1]
    assert evo("lineage", run_id, "--tree", "--dot")[1].count("label=") == 6


@pytest.mark.parametrize("options", [("--tree", "--blame"), ("--dot", "--mermaid"), ("--dot", "--blame")])
def test_what_does_not_go_together(run_id: str, options: tuple[str, str]) -> None:
    assert evo("lineage", run_id, *options)[0] == 2
