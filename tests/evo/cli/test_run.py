"""`evo run` from the outside, on an evaluator that answers at once; the real one is in test_smoke.py."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from click.testing import CliRunner
from rich.status import Status

from evo.archive import Archive
from evo.cli import jobs
from evo.cli.boundary import INTERRUPTED
from evo.cli.experiments import find
from evo.cli.group import cli
from evo.evaluator import never
from evo.llm.connect import Connection
from evo.pool import CandidateLimits, DeviceSpec
from evo.report.folder import run_folder, write_run_folder
from fitness import gpu as gpus
from fitness.evaluate import Prepared
from fitness.kernel import Kernel
from fitness.outcome import Finding, Gate, Outcome, Resources, Timed, Timing, WrongResult
from fitness.task import Task
from mutations.llm.folder import FolderTransport


class InstantPool:
    """Judges a kernel by its id: right, and as fast as the hash says."""

    interrupt_at: int | None = None
    judged = 0

    def __init__(self, device: DeviceSpec, workers: int, limits: CandidateLimits | None = None) -> None:
        del limits
        self.device, self.workers = device, workers

    def __enter__(self) -> InstantPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def worker_pids(self) -> tuple[int, ...]:
        return tuple(range(self.workers))

    def prepare(
        self, task: Task, kernels: Iterable[tuple[int, Kernel]], *, stop: Callable[[], bool] = never
    ) -> Iterator[tuple[int, Prepared | Outcome]]:
        del task, stop
        for n, kernel in kernels:
            self._interrupt()
            yield n, Prepared(kernel.id)

    def judge(
        self,
        task: Task,
        kernels: Iterable[tuple[int, Kernel]],
        depth: Gate = Gate.TIMING,
        incumbent_us: float | None = None,
        *,
        full: bool = False,
        stop: Callable[[], bool] = never,
    ) -> Iterator[tuple[int, Outcome]]:
        del incumbent_us, full, stop
        card = gpus.load(self.device.gpu)
        for n, kernel in kernels:
            self._interrupt()
            type(self).judged += 1
            factor = 1.5 + int(kernel.id[:4], 16) / 0xFFFF
            timings = []
            for shape in task.shapes:
                floor_us = task.floor_us(shape, card)
                time_us = factor * floor_us
                timings.append(Timing(shape, "modelled", time_us, time_us, time_us, floor_us, 1.0, 1.0, "DRAM"))
            yield n, Timed(depth, code_key=kernel.id, timings=tuple(timings), resources=Resources(32, 0, 0, 1.0))

    def _interrupt(self) -> None:
        if self.interrupt_at is not None and self.judged >= self.interrupt_at:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[InstantPool]:
    kind = type("InstantPool", (InstantPool,), {"judged": 0, "interrupt_at": None})
    monkeypatch.setattr(jobs, "Pool", kind)
    monkeypatch.setattr(
        jobs, "write_run_folder", lambda archive, summary: (run_folder(archive.path, summary.run_id), [])
    )
    monkeypatch.chdir(tmp_path)
    return kind


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["run", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def only_run() -> str:
    with Archive.open("runs/archive.db", readonly=True) as archive:
        (found,) = archive.runs()
    return found.id


def test_a_run_says_what_it_does_and_leaves_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "write_run_folder", write_run_folder)
    code, out, err = run("smoke")
    assert code == 0, err
    name = only_run()
    for words in (
        "smoke is not here; using the experiment that comes with evo",
        f"run       {name}",
        "device    simulator of H200 (sm_90a)",
        "clock     modelled",
        "model     none; ",
        "archive   runs/archive.db",
        "generation 2/2",
        "M=128 K=128 N=16",
        "geometric mean",
        f"next      evo lineage {name}/",
        f"evo plot {name}",
    ):
        assert words in out
    files = {path.name for path in (Path("runs") / name).iterdir()}
    assert files == {"best.cu", "best.ptx", "plot.png", "plot.pdf", "plot.csv", "report.md"}
    assert err == ""


def test_json_is_all_there_is_on_stdout() -> None:
    code, out, err = run("smoke", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["run"] == only_run()
    assert result["status"] == "finished"
    assert result["clock"] == "modelled"
    assert result["speedup"] > 0
    assert len(result["shapes"]) == 2
    assert "generation 1/2" in err


def test_quiet_shows_only_the_result() -> None:
    code, out, _ = run("smoke", "--quiet")
    assert code == 0
    assert "geometric mean" in out
    assert "generation 1" not in out


def test_set_changes_one_key() -> None:
    assert run("smoke", "--set", "search.generations=1", "--set", "name=other", "--quiet")[0] == 0
    with Archive.open("runs/archive.db", readonly=True) as archive:
        (found,) = archive.runs("other")
    assert found.experiment["search"]["generations"] == 1


def test_dry_run_spends_nothing_and_says_what_would_happen(instant: type[InstantPool]) -> None:
    code, out, _ = run("smoke", "--dry-run")
    assert code == 0
    for words in (
        "seed      spmm/",
        "baseline  gemm/dense_mma_pipelined",
        "headroom  ",
        "cost      at most 8 candidates",
    ):
        assert words in out
    assert instant.judged == 3  # two seeds and the baseline
    assert not Path("runs").exists()


@pytest.mark.usefixtures("instant")
def test_dry_runs_of_several_say_which_is_which_and_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Status, "update", lambda _self, text: told.append(text))
    code, out, _ = run("smoke", "nm24", "--dry-run")
    assert code == 0
    assert out.index("experiment smoke\n") < out.index("baseline") < out.index("experiment nm24\n")
    assert told[:4] == [f"smoke: {done} of 3 kernels judged" for done in range(4)]
    assert "experiment smoke" not in run("smoke", "--dry-run")[1]


def test_dry_run_as_json() -> None:
    _, out, _ = run("smoke", "--dry-run", "--json")
    forecast = json.loads(out)
    assert forecast["headroom"] >= 1.5
    assert [seed["verdict"] for seed in forecast["seeds"]] == ["Timed", "Timed"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_dry_run_fails_where_the_run_would(monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    """One wrong seed ends a run, so it ends the dry run with the same line, and no archive is made."""

    class Wrong(InstantPool):
        def judge(self, task: Task, kernels: Iterable[tuple[int, Kernel]], *rest: Any, **more: Any) -> Any:
            for n, outcome in super().judge(task, kernels, *rest, **more):
                wrong = WrongResult(Gate.SMALL_RUN, (Finding(Gate.SMALL_RUN, "wrong_values", "zeros at m >= 16"),))
                yield n, wrong if n == 0 else outcome

    monkeypatch.setattr(jobs, "Pool", Wrong)
    code, out, _ = run("smoke", "--dry-run", *(["--json"] if as_json else []))
    assert code == 1
    assert "seed spmm/nm24_mma_sp fails: WrongResult at small_run: zeros at m >= 16; correct it" in out
    assert not Path("runs").exists()
    assert run("smoke", "--quiet")[0] == 1


def test_a_dry_run_looks_into_the_archive_for_similar_kernels() -> None:
    """It starts from what the run would start from."""
    assert run("smoke", "--quiet")[0] == 0
    text = Path(find("smoke").path).read_text(encoding="utf-8").replace('"smoke"', '"more"')
    seeds = text.replace("seeds    = [", 'seeds    = ["archive:similar", ')
    assert seeds != text
    Path("more.toml").write_text(seeds, encoding="utf-8")
    code, out, _ = run("more.toml", "--dry-run", "--json")
    assert code == 0
    names = [seed["name"] for seed in json.loads(out)["seeds"]]
    assert any(name.startswith("archive:") for name in names)
    code, out, _ = run("more.toml")
    assert code == 0
    assert all(name in out for name in names)


def test_a_dry_run_without_seeds_needs_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("smoke", "--dry-run", "--set", "task.seeds=[]")
    assert code == 1
    assert "task.seeds gives no kernel to start from" in err
    monkeypatch.setattr(jobs, "connect", lambda *_: Connection((), FolderTransport(Path("asked"))))
    code, out, _ = run("smoke", "--dry-run", "--set", "task.seeds=[]")
    assert code == 0
    assert "refused" not in out
    code, _, _ = run("smoke", "--dry-run", "--set", "task.seeds=[]", "--no-llm")
    assert code == 1


def test_a_dry_run_checks_that_the_budget_covers_the_seeds() -> None:
    code, _, err = run("smoke", "--dry-run", "--set", "budget.evaluations=1")
    assert code == 1
    assert "does not even cover the 2 seeds" in err


def test_all_experiments_are_checked_before_one_is_run() -> None:
    code, out, err = run("smoke", "missing.toml")
    assert code == 1
    assert "generation" not in out
    assert err.startswith("evo: missing.toml: no such file")


def test_ctrl_c_keeps_everything_and_resume_goes_on(instant: type[InstantPool]) -> None:
    instant.interrupt_at = 6
    code, out, _ = run("smoke")
    assert code == INTERRUPTED
    assert "next      evo run smoke --resume" in out
    instant.interrupt_at = None
    code, out, _ = run("smoke", "--resume")
    assert code == 0
    assert "resumed with" in out
    with Archive.open("runs/archive.db", readonly=True) as archive:
        (found,) = archive.runs()
        assert found.status == "finished"
        assert len(archive.judged(found.id)) == 8  # two seeds, two generations of three


def test_a_run_out_of_budget_says_how_to_go_on() -> None:
    code, out, _ = run("smoke", "--set", "budget.evaluations=4")
    assert code == 0
    assert "next      evo run smoke --resume --set budget.evaluations=8" in out
    code, out, _ = run("smoke", "--resume", "--set", "budget.evaluations=8")
    assert code == 0
    assert "resumed with 4 candidates" in out


def test_resume_takes_a_run() -> None:
    """Not the latest: an older one, by its id or what it begins with; without a value the latest, as ever."""
    run("smoke", "--quiet", "--set", "budget.evaluations=4")
    run("smoke", "--quiet", "--set", "budget.evaluations=5")
    with Archive.open("runs/archive.db", readonly=True) as archive:
        later, older = archive.runs()
    code, out, _ = run("smoke", "--set", "budget.evaluations=8", "--resume", older.id[:-1])
    assert (code, "resumed with 4 candidates" in out) == (0, True)
    assert f"next      evo lineage {older.id}/" in out
    assert f"evo run smoke --resume {older.id} --set budget.evaluations=8 --set search.generations=4\n" in out
    code, _, err = run("smoke", "--resume", older.id, "--set", "budget.evaluations=8")
    says = "finished; raise search.generations, or start a new run without --resume"
    assert (code, err) == (1, f"evo: run {older.id} is {says}\n")
    settings = ("--set", "budget.evaluations=8", "--set", "search.generations=3")
    assert run("smoke", "--resume", older.id, *settings)[0] == 0
    code, out, _ = run("--resume", "smoke", "--set", "budget.evaluations=8")  # no run, but what is to run
    assert (code, "resumed with 5 candidates" in out) == (0, True)
    with Archive.open("runs/archive.db", readonly=True) as archive:
        assert len(archive.runs()) == 2
        assert len(archive.judged(later.id)) == 8


def test_resume_of_what_is_no_run_of_the_experiment() -> None:
    assert run("smoke", "--resume", "smoke-0000")[2].startswith("evo: archive runs/archive.db does not exist")
    assert not Path("runs").exists()
    run("smoke", "--quiet", "--set", "budget.evaluations=4")
    with Archive.open("runs/archive.db", readonly=True) as archive:
        (found,) = archive.runs()
    typo = found.id[:-1] + "x"
    assert run("smoke", "--resume", typo)[::2] == (
        1, f'evo: no run "{typo}" in the archive; did you mean {found.id}?\n',
    )  # fmt: skip
    assert run("smoke", "--replay", typo)[2] == f'evo: no run "{typo}" in the archive; did you mean {found.id}?\n'
    assert run("smoke", "--resume", f"{found.id}/1")[2] == (
        f'evo: "{found.id}/1" names a candidate; name its run: {found.id}\n'
    )
    Path("mine.toml").write_text(find("smoke").path.read_text(encoding="utf-8").replace('"smoke"', '"mine"', 1))
    code, _, err = run("mine", "--resume", found.id)
    assert (code, err) == (
        1, f"evo: run {found.id} is of experiment smoke, not of mine; name one of mine, or run smoke\n",
    )  # fmt: skip


def test_what_to_try_next_makes_the_same_experiment() -> None:
    _, out, _ = run("smoke", "--set", "budget.evaluations=4", "--set", "search.children=2", "--no-llm")
    (line,) = [line for line in out.splitlines() if line.startswith("next")]
    command = shlex.split(line.removeprefix("next").strip())
    assert command[:2] == ["evo", "run"]
    code, out, err = run(*command[2:])
    assert (code, "resumed with 4 candidates" in out) == (0, True), err
    for line in [line[10:] for line in out.splitlines() if " evo run " in line]:
        assert run(*shlex.split(line)[2:], "--quiet")[0] == 0


def test_resume_refuses_a_changed_experiment() -> None:
    run("smoke", "--quiet", "--set", "budget.evaluations=4")
    code, _, err = run("smoke", "--resume", "--set", "search.children=5")
    assert code == 1
    assert "search.children" in err


BAD = {
    "no TOML": ("name = ", "is not valid TOML"),
    "unknown key": ('name = "x"\n[serach]\n[task]\nop = "spmm"\n', 'serach: unknown key; did you mean "search"?'),
    "unknown op": ('name = "x"\n[task]\nop = "spm"\nshapes = [{M=64,K=64,N=8}]\n', "did you mean 'spm"),
    "impossible shape": (
        'name = "x"\n[task]\nop = "spmm"\npattern = {kind="nm",n=2,m=4}\ndtype="float16"\n'
        'shapes = [{M=64,K=30,N=8}]\nseeds=["spmm/nm24_*"]\n',
        "K",
    ),
    "no such seed": (
        'name = "x"\n[task]\nop = "spmm"\npattern = {kind="nm",n=2,m=4}\ndtype="float16"\n'
        'shapes = [{M=64,K=64,N=8}]\nseeds=["spmm/nm25_*"]\n',
        "nm25_*",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_experiment_is_refused_in_clear_lines(case: str) -> None:
    text, words = BAD[case]
    Path("bad.toml").write_text(text, encoding="utf-8")
    code, _, err = run("bad.toml")
    assert code == 1
    assert words in err
    assert all(line.startswith("evo: ") for line in err.splitlines())
    assert "Traceback" not in err


def test_cuda_is_refused_not_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.cli.jobs.missing", lambda: "the driver sees no card")
    code, _, err = run("smoke", "--set", "device.kind=cuda")
    assert code == 1
    assert 'device.kind = "cuda": the driver sees no card' in err


def test_an_archive_that_is_not_sqlite() -> None:
    Path("notes.db").write_text("these are my notes, not a database" * 50, encoding="utf-8")
    code, _, err = run("smoke", "--archive", "notes.db")
    assert code == 1
    assert "not an SQLite database" in err
    assert Path("notes.db").read_text(encoding="utf-8").startswith("these are my notes")


def test_a_database_of_someone_else() -> None:
    with sqlite3.connect("other.db") as other:
        other.execute("create table pets (name text)")
    code, _, err = run("smoke", "--archive", "other.db")
    assert code == 1
    assert "not an archive of evo" in err


def test_an_archive_of_a_newer_version() -> None:
    Archive.open("new.db").close()
    with sqlite3.connect("new.db") as newer:
        newer.execute("pragma user_version = 99")
    code, _, err = run("smoke", "--archive", "new.db")
    assert code == 1
    assert "newer evo" in err


def test_a_folder_that_cannot_be_made() -> None:
    Path("runs").write_text("a file", encoding="utf-8")
    code, _, err = run("smoke")
    assert code == 1
    assert len(err.splitlines()) == 1
    assert "runs" in err


def test_no_llm_without_other_operators_is_an_error() -> None:
    text = Path(find("smoke").path).read_text(encoding="utf-8")
    Path("own.toml").write_text(text, encoding="utf-8")
    assert run("own.toml", "--no-llm", "--quiet")[0] == 0


def test_an_absurd_number_of_workers_is_refused_at_once() -> None:
    result = CliRunner().invoke(cli, ["run", "smoke", "--dry-run", "--workers", "100000000"])
    assert result.exit_code == 2
    assert "1<=x<=1024" in result.output


@pytest.mark.parametrize("name", ["nomod:Cls", "json:JSONDecoder"])
def test_a_dry_run_refuses_an_operator_that_cannot_be_loaded(name: str) -> None:
    result = CliRunner().invoke(cli, ["run", "smoke", "--dry-run", "--set", f"operators.{name}=1"])
    assert result.exit_code == 1
    assert f"evo: operators.{name}" in result.output


def test_a_name_too_long_for_the_file_system_is_refused() -> None:
    result = CliRunner().invoke(cli, ["run", "a" * 300, "--dry-run"])
    assert result.exit_code == 1
    assert "the name is too long; choose a shorter one" in result.output
