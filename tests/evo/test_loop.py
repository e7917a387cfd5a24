from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mutations
import seeds
from evo import resuming
from evo.archive import Archive, Refused, facts
from evo.errors import ArchiveError, BaselineError, ResumeError, SeedError
from evo.evaluator import never
from evo.loop import run_experiment
from evo.merit import fitness_us, geometric_mean
from evo.observer import RunInfo, Silent
from fitness.baselines import BaselineTimes
from fitness.outcome import Gate
from fitness.task import Task
from tests.evo import fakes


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fake seeds and operators instead of the real ones."""
    folder = tmp_path / "seeds"
    folder.mkdir()
    for name in ("slow", "middle", "fast"):
        (folder / f"fake_{name}.cu").write_text(fakes.source(name))
    (folder / "dense_mma_pipelined.cu").write_text(fakes.source("dense", "dense"))

    def seed_paths(pattern: str) -> tuple[Path, ...]:
        return tuple(sorted(folder.glob(pattern.split("/")[-1] + ".cu")))

    monkeypatch.setattr(seeds, "seed_paths", seed_paths, raising=False)
    monkeypatch.setattr(mutations, "OPERATORS", fakes.OPERATORS, raising=False)


def content(path: Path, run_id: str) -> dict[str, list[Any]]:
    """Everything the archive holds of a run but moments, seconds and the run's id, in order of n."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    tables: dict[str, list[Any]] = {}
    for table in ("candidates", "parents", "outcomes", "timings", "confirmations"):
        rows = [dict(row) for row in connection.execute(f"select * from {table} where run_id = ?", [run_id])]
        for row in rows:
            for column in ("run_id", "parent_run_id", "created_at", "judged_at", "compile_s", "evaluate_s"):
                row.pop(column, None)
        tables[table] = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True, default=str))
    ids = "select kernel_id from candidates where run_id = ?"
    tables["kernels"] = [
        tuple(row) for row in connection.execute(f"select * from kernels where id in ({ids}) order by id", [run_id])
    ]
    connection.close()
    return tables


def test_a_run_finds_the_best_and_says_so() -> None:
    watcher = fakes.Watcher()
    pool = fakes.FakePool()
    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(search__generations=10), archive, pool=pool, observer=watcher)
        run = archive.run(summary.run_id)
        judged = archive.judged(summary.run_id)
    assert run is not None
    assert run.status == summary.status == "finished"
    assert summary.reason == "all generations done"
    assert summary.confirmed
    assert summary.best is not None
    times = [t for j in judged if (t := fitness_us(j.outcome)) is not None]
    assert fakes.time_us(summary.best.kernel, {"K": 128}) * 2**0.25 == pytest.approx(min(times))
    assert summary.best.kernel.header.about == "fast"
    assert summary.gain is not None
    assert summary.gain > 2
    row = summary.rows[0]
    assert row.speedup == pytest.approx(row.baseline_us / row.best_us)
    assert row.gain == pytest.approx(row.seed_us / row.best_us)
    assert row.floor_fraction == pytest.approx(1.5 / row.best_us)
    assert summary.speedup == pytest.approx((summary.rows[0].speedup * summary.rows[1].speedup) ** 0.5)
    assert watcher.summaries == [summary]
    assert [stats.generation for stats in watcher.generations] == list(range(11))
    bests = [stats.best_us for stats in watcher.generations]
    assert all(a is not None and b is not None and b <= a for a, b in itertools.pairwise(bests))
    assert watcher.infos[0].floor_us[0] > 1.0
    assert len(watcher.infos[0].seeds) == 3


def test_every_kernel_is_evaluated_exactly_once() -> None:
    pool = fakes.FakePool()
    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(), archive, pool=pool)
        entries = archive.entries(summary.run_id)
        judged = archive.judged(summary.run_id)
    kernels = {entry.kernel.id for entry in entries if not isinstance(entry, Refused)}
    compiled = [fakes.code_key(j.candidate.kernel) for j in judged if j.outcome.code_key is not None]
    own = [j for j in judged if j.reused_from is None]
    assert pool.count("prepare") == len(kernels)
    assert pool.count("judge full") == 1 + 3  # the baseline and the seeds
    assert pool.count("judge full") + pool.count("judge") == 1 + len(set(compiled))
    assert summary.state.evaluations == len(own)
    assert summary.state.judged == len(judged)
    assert summary.state.duplicates == len(judged) - len(own)
    refused = sum(isinstance(entry, Refused) for entry in entries)
    assert refused > 0  # their places were filled once
    assert summary.state.planned == len(entries)
    assert 3 + 4 * 8 < len(entries) <= 3 + 4 * 8 + refused
    assert pool.count("confirm") == 2


def test_duplicates_reuse_the_first_verdict() -> None:
    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(search__generations=8), archive, pool=fakes.FakePool())
        judged = {j.candidate.plan.n: j for j in archive.judged(summary.run_id)}
    reused = [j for j in judged.values() if j.reused_from is not None]
    assert reused  # SAME makes them
    for duplicate in reused:
        assert duplicate.reused_from is not None
        first = judged[duplicate.reused_from]
        assert duplicate.reused_from < duplicate.candidate.plan.n
        assert first.reused_from is None
        assert first.outcome.code_key == duplicate.outcome.code_key
        assert fitness_us(first.outcome) == fitness_us(duplicate.outcome)
        assert duplicate.outcome.cost.evaluate_s == 0


def test_no_child_repeats_a_kernel_while_others_are_left() -> None:
    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(operators={"tune": 1}), archive, pool=fakes.FakePool())
        ids = [e.kernel.id for e in archive.entries(summary.run_id) if not isinstance(e, Refused)]
    assert len(ids) - len(set(ids)) <= 4  # eight attempts are not always enough to leave a corner


@pytest.mark.parametrize("workers", [2, 4])
def test_the_number_of_workers_changes_nothing(tmp_path: Path, workers: int) -> None:
    contents = []
    for count in (1, workers):
        path = tmp_path / f"{count}.db"
        with Archive.open(path) as archive:
            summary = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(count))
        contents.append(content(path, summary.run_id))
    assert contents[0] == contents[1]
    assert len(contents[0]["outcomes"]) > 20


def _killed_at(path: Path, call: int, sign: signal.Signals) -> int:
    """Run in a child process that ends itself at the call-th call of the pool; its wait status."""
    child = os.fork()
    if child == 0:
        seen = 0

        def on_call(_what: str, _n: int) -> None:
            nonlocal seen
            seen += 1
            if seen == call:
                os.kill(os.getpid(), sign)

        with Archive.open(path) as archive:
            summary = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(2, on_call=on_call))
        os._exit(0 if summary.status == "finished" else 42)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("call", [1, 2, 4, 6, 9, 16, 30, 45, -1])
def test_killed_and_resumed_is_as_if_never_killed(tmp_path: Path, call: int) -> None:
    whole, broken = tmp_path / "whole.db", tmp_path / "broken.db"
    with Archive.open(whole) as archive:
        straight = run_experiment(fakes.experiment(), archive, pool=(straight_pool := fakes.FakePool()))
    call = len(straight_pool.calls) if call == -1 else call  # the last one: in the confirmation
    status = _killed_at(broken, call, signal.SIGKILL)
    assert os.WIFSIGNALED(status)
    with Archive.open(broken) as archive:
        done = archive.outcomes(archive.runs()[0].id)
        resumed = run_experiment(fakes.experiment(), archive, pool=(pool := fakes.FakePool()), resume=True)
        assert archive.check() == []
        assert [run.status for run in archive.runs()] == ["finished"]
    assert content(whole, straight.run_id) == content(broken, resumed.run_id)
    assert resumed.best == straight.best
    assert resumed.rows == straight.rows
    assert not {n for what, n in pool.calls if what != "confirm"} & done.keys()


def test_killed_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Archive.open(path) as archive:
        straight = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool())
    _killed_at(path, 20, signal.SIGKILL)

    def stop(what: str, _n: int) -> None:
        if what == "judge":
            raise KeyboardInterrupt

    with Archive.open(path) as archive:
        again = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(on_call=stop), resume=True)
        assert again.status == "interrupted"
        resumed = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(), resume=True)
    assert again.run_id == resumed.run_id != straight.run_id
    assert content(path, straight.run_id) == content(path, resumed.run_id)


def test_sigterm_ends_cleanly(tmp_path: Path) -> None:
    status = _killed_at(tmp_path / "a.db", 20, signal.SIGTERM)
    assert os.WEXITSTATUS(status) == 42
    with Archive.open(tmp_path / "a.db") as archive:
        assert archive.runs()[0].status == "interrupted"


def test_interrupted_keeps_the_best_but_does_not_call_it_confirmed() -> None:
    def stop(what: str, n: int) -> None:
        if what == "judge" and n > 20:
            raise KeyboardInterrupt

    watcher = fakes.Watcher()
    with Archive.memory() as archive:
        pool = fakes.FakePool(on_call=stop)
        summary = run_experiment(fakes.experiment(), archive, pool=pool, observer=watcher)
    assert summary.status == "interrupted"
    assert summary.best is not None
    assert not summary.confirmed
    assert summary.confirmations == ()
    assert len(watcher.summaries) == 1


@pytest.mark.parametrize("limit", [3, 10, 11, 17])
def test_budget_of_evaluations_is_never_exceeded(limit: int) -> None:
    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(budget__evaluations=limit), archive, pool=fakes.FakePool())
        assert archive.runs()[0].status == "stopped"
    assert summary.state.evaluations <= limit
    assert summary.confirmed
    assert "evaluations" in summary.reason


def test_a_raised_budget_goes_on_as_if_it_had_been_higher(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Archive.open(path) as archive:
        straight = run_experiment(fakes.experiment(budget__evaluations=40), archive, pool=fakes.FakePool())
        first = run_experiment(fakes.experiment(budget__evaluations=14), archive, pool=fakes.FakePool())
        pool = fakes.FakePool()
        second = run_experiment(fakes.experiment(budget__evaluations=40), archive, pool=pool, resume=True)
        confirmed = archive.confirmations(first.run_id)
    assert first.run_id == second.run_id
    ours, theirs = content(path, second.run_id), content(path, straight.run_id)
    for table in ("candidates", "parents", "outcomes"):
        assert ours[table] == theirs[table]
    assert len(confirmed) >= 2  # those of the first end are kept


def test_minutes_end_a_run_and_count_over_sessions(tmp_path: Path) -> None:
    now = [0.0]

    def tick(_what: str, _n: int) -> None:
        now[0] += 6.0

    with Archive.open(tmp_path / "a.db") as archive:
        pool = fakes.FakePool(on_call=tick)
        summary = run_experiment(fakes.experiment(budget__minutes=2), archive, pool=pool, clock=lambda: now[0])
        assert summary.status == "stopped"
        assert "minutes" in summary.reason
        assert summary.confirmed  # what is there is confirmed
        assert 15 < len([call for call in pool.calls if call[0] != "confirm"]) <= 21
        now[0] = 0.0
        raised = fakes.experiment(budget__minutes=1000)
        assert (
            run_experiment(raised, archive, pool=fakes.FakePool(), resume=True, clock=lambda: now[0]).status
            == "finished"
        )


class Stopping(fakes.FakePool):
    """Asks first whether to begin at all."""

    def prepare(self, *args: Any, stop: Callable[[], bool] = never, **how: Any) -> Iterator[Any]:
        return iter(()) if stop() else super().prepare(*args, **how)

    def judge(self, *args: Any, stop: Callable[[], bool] = never, **how: Any) -> Iterator[Any]:
        return iter(()) if stop() else super().judge(*args, **how)


def test_a_run_whose_time_is_over_is_told_to_its_end_when_it_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def tick(_what: str, _n: int) -> None:
        now[0] += 6.0

    with Archive.memory() as archive:
        experiment = fakes.experiment(budget__minutes=2)
        pool = fakes.FakePool(on_call=tick)
        stopped = run_experiment(experiment, archive, pool=pool, clock=lambda: now[0])
        monkeypatch.setattr(resuming, "earlier_s", lambda _archive, _run: now[0])
        pool = Stopping()
        again = run_experiment(experiment, archive, pool=pool, resume=True, clock=lambda: 0.0)
    assert (again.status, again.reason) == (stopped.status, stopped.reason)
    assert again.best == stopped.best is not None
    assert again.state.judged == stopped.state.judged
    assert pool.calls == []


def test_target_speedup_stops_once_it_is_confirmed() -> None:
    pool = fakes.FakePool(refuted=lambda kernel: kernel.params["SAME"] == 1)
    with Archive.memory() as archive:
        changes = fakes.experiment(search__target_speedup=2.0, search__generations=30)
        summary = run_experiment(changes, archive, pool=pool)
    assert summary.status == "finished"
    assert summary.reason == "target speedup of 2 confirmed"
    assert summary.confirmed
    assert summary.speedup is not None
    assert summary.speedup >= 2.0
    assert summary.state.generation < 30


def test_the_answer_is_the_best_confirmed_one() -> None:
    with Archive.memory() as archive:
        pool = fakes.FakePool(refuted=lambda kernel: fakes.time_us(kernel, {"K": 128}) < 70)
        watcher = fakes.Watcher()
        summary = run_experiment(fakes.experiment(search__generations=8), archive, pool=pool, observer=watcher)
        kept = archive.confirmations(summary.run_id)
    assert summary.best is not None
    assert fakes.time_us(summary.best.kernel, {"K": 128}) >= 70
    assert {c.verdict for c in summary.confirmations} == {"confirmed", "refuted"}
    assert tuple(kept.values()) == summary.confirmations
    assert summary.state.best is not None
    assert "refuted" in [kind for kind, _ in watcher.events]


def test_nothing_confirmed_is_no_answer() -> None:
    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(refuted=lambda _kernel: True))
    assert summary.best is None
    assert not summary.confirmed
    assert summary.rows == ()


def test_a_wrong_seed_ends_the_run_in_one_line() -> None:
    pool = fakes.FakePool(broken=lambda kernel: kernel.header.about == "middle")
    with Archive.memory() as archive:
        with pytest.raises(SeedError, match=r"fake_middle.*WrongResult at small_run, line 14: a tile is missing"):
            run_experiment(fakes.experiment(), archive, pool=pool)
        assert archive.runs()[0].status == "failed"


def test_a_wrong_baseline_ends_the_run() -> None:
    pool = fakes.FakePool(broken=lambda kernel: kernel.header.about == "dense")
    with Archive.memory() as archive, pytest.raises(BaselineError, match="dense_mma_pipelined"):
        run_experiment(fakes.experiment(), archive, pool=pool)


def test_too_small_a_budget_for_the_seeds() -> None:
    with Archive.memory() as archive, pytest.raises(SeedError, match="3 seeds"):
        run_experiment(fakes.experiment(budget__evaluations=2), archive, pool=fakes.FakePool())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"search__children": 9}, "search.children: 8 -> 9"),
        ({"rng_seed": 8}, "rng_seed: 7 -> 8"),
        ({"name": "other"}, "no run named other"),
        ({"operators": {"tune": 1}}, "operators"),
        ({}, "is finished"),
    ],
)
def test_what_cannot_be_resumed(changes: dict[str, Any], words: str) -> None:
    with Archive.memory() as archive:
        run_experiment(fakes.experiment(), archive, pool=fakes.FakePool())
        with pytest.raises(ResumeError, match=words):
            run_experiment(fakes.experiment(**changes), archive, pool=fakes.FakePool(), resume=True)


def test_raised_generations_continue_a_finished_run(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Archive.open(path) as archive:
        straight = run_experiment(fakes.experiment(search__generations=6), archive, pool=fakes.FakePool())
        run_experiment(fakes.experiment(), archive, pool=fakes.FakePool())
        longer = fakes.experiment(search__generations=6)
        resumed = run_experiment(longer, archive, pool=fakes.FakePool(), resume=True)
    ours, theirs = content(path, resumed.run_id), content(path, straight.run_id)
    assert ours["candidates"] == theirs["candidates"]
    assert ours["outcomes"] == theirs["outcomes"]


def test_a_run_under_way_is_not_resumed_by_another(tmp_path: Path) -> None:
    def resume(what: str, _n: int) -> None:
        if what == "judge":
            with Archive.open(tmp_path / "a.db") as second, pytest.raises(ResumeError, match="another process"):
                run_experiment(fakes.experiment(), second, pool=fakes.FakePool(), resume=True)
            raise KeyboardInterrupt

    with Archive.open(tmp_path / "a.db") as archive:
        assert run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(on_call=resume)).status == "interrupted"
        assert run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(), resume=True).status == "finished"
    assert not list(tmp_path.glob("*.lock"))


def test_two_runs_at_once_in_one_archive(tmp_path: Path) -> None:
    """The second run begins and ends in the middle of the first."""
    path = tmp_path / "a.db"
    inner: list[str] = []

    def nested(what: str, _n: int) -> None:
        if what == "judge" and not inner:
            with Archive.open(path) as second:
                inner.append(run_experiment(fakes.experiment(), second, pool=fakes.FakePool()).run_id)

    with Archive.open(path) as archive:
        outer = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(on_call=nested))
        assert archive.check() == []
    assert content(path, outer.run_id) == content(path, inner[0])


def test_a_full_disk_ends_the_run_and_loses_nothing(tmp_path: Path, full: Callable[[Archive], None]) -> None:
    path = tmp_path / "a.db"
    with Archive.open(path) as archive:
        straight = run_experiment(fakes.experiment(search__generations=12), archive, pool=fakes.FakePool())

        def fill(what: str, n: int) -> None:
            if what == "judge" and n >= 12:
                full(archive)

        with pytest.raises(ArchiveError, match=r"disk is full.*--resume"):
            run_experiment(fakes.experiment(search__generations=12), archive, pool=fakes.FakePool(on_call=fill))
    with Archive.open(path) as archive:
        resumed = run_experiment(fakes.experiment(search__generations=12), archive, pool=fakes.FakePool(), resume=True)
    assert content(path, straight.run_id) == content(path, resumed.run_id)


@pytest.fixture
def full() -> Callable[[Archive], None]:
    """Makes the file of an open archive unable to grow, and fills what is left in it."""

    def fill(archive: Archive) -> None:
        connection = archive._db.conn
        connection.execute(f"pragma max_page_count = {connection.execute('pragma page_count').fetchone()[0]}")
        run_id = archive.runs()[0].id
        for size in (3000, 300, 10):
            with contextlib.suppress(ArchiveError):
                while True:
                    archive.add_event(run_id, "filler", {"text": "x" * size})

    return fill


def test_incumbents_and_depths_are_those_of_the_contract() -> None:
    seen: list[tuple[Gate, float | None, bool]] = []

    class Recording(fakes.FakePool):
        def judge(
            self,
            task: Any,
            kernels: Any,
            depth: Gate = Gate.TIMING,
            incumbent_us: float | None = None,
            *,
            full: bool = False,
            stop: Any = never,
        ) -> Any:
            seen.append((depth, incumbent_us, full))
            return super().judge(task, kernels, depth, incumbent_us, full=full, stop=stop)

    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(), archive, pool=Recording())
    bests = [stats.best_us for stats in summary.generations]
    assert seen[:2] == [(Gate.TIMING, None, True)] * 2
    assert [us for _, us, _ in seen[2:6]] == bests[:4]
    assert seen[-1] == (Gate.CONFIRMATION, None, True)


@pytest.mark.parametrize("where", ["prepare", "judge"])
def test_a_pool_that_hangs_ends_with_the_time_of_the_run(where: str) -> None:
    seconds = iter(range(10_000))

    class Hanging(fakes.FakePool):
        def prepare(self, task: Any, kernels: Any, *, stop: Any = never) -> Any:
            return (
                self.hang(super().prepare(task, kernels), stop)
                if where == "prepare"
                else super().prepare(task, kernels)
            )

        def judge(self, task: Any, kernels: Any, *rest: Any, full: bool = False, stop: Any = never) -> Any:
            results = super().judge(task, kernels, *rest, full=full)
            return results if full or where == "prepare" else self.hang(results, stop)

        def hang(self, results: Any, stop: Any) -> Any:
            for n, result in results:
                if n >= 4:  # the second candidate of the first generation never ends
                    while not stop():
                        pass
                    return
                yield n, result

    with Archive.memory() as archive:
        experiment = fakes.experiment(budget={"minutes": 20})
        summary = run_experiment(experiment, archive, pool=Hanging(), clock=lambda: float(next(seconds)))
        assert (summary.status, summary.reason) == ("stopped", "budget of minutes spent")
        assert archive.runs()[0].status == "stopped"
    assert summary.best is not None


def test_every_vendor_routine_is_archived_and_the_fastest_is_the_baseline() -> None:
    class Card(fakes.FakePool):
        asked = 0

        def baselines(self, task: Task) -> tuple[BaselineTimes, ...]:
            type(self).asked += 1
            slow, quick = (fakes.timings(fakes.kernel("fast", A=a), task) for a in (1, 8))
            return BaselineTimes("slow", slow), BaselineTimes("quick", quick), BaselineTimes("none", (), "no blocks")

    slow, quick = (fakes.timings(fakes.kernel("fast", A=a), fakes.experiment().checked_task) for a in (1, 8))
    if slow[0].time_us < quick[0].time_us:
        slow, quick = quick, slow
    told_first: list[str] = []

    class Watch(Silent):
        def on_start(self, info: RunInfo) -> None:
            told_first.append(info.baseline)

    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(), archive, pool=Card(), observer=Watch())
        assert told_first[0].startswith("the fastest vendor routine of each shape, or ")
        named = list(facts.baselines(archive, summary.run_id))
        assert {name for name, _ in named} == {"slow", "quick"}
        assert summary.baseline == named[0][0]
        assert [t.time_us for t in named[0][1]] == [t.time_us for t in quick]
        assert facts.baseline_us(archive, summary.run_id) == pytest.approx(geometric_mean(t.time_us for t in quick))
        told = [event.data["message"] for event in archive.events(summary.run_id, "vendor")]
        assert told[2] == "none: no blocks"
    assert Card.asked == 1


def test_a_routine_may_be_named_as_the_baseline() -> None:
    class Card(fakes.FakePool):
        works = True

        def baselines(self, task: Task) -> tuple[BaselineTimes, ...]:
            assert task.baseline_routine == "mine:product"
            times = fakes.timings(fakes.kernel("fast"), task)
            own = BaselineTimes("mine:product", times if self.works else (), "" if self.works else "no module mine")
            return BaselineTimes("cublas", fakes.timings(fakes.kernel("fast", A=8), task)), own

    experiment = fakes.experiment(task__baseline="mine:product")
    with Archive.memory() as archive:
        summary = run_experiment(experiment, archive, pool=Card())
        assert summary.baseline == "mine:product"
        assert [name for name, _ in facts.baselines(archive, summary.run_id)] == ["mine:product", "cublas"]
    broken = Card()
    broken.works = False
    with Archive.memory() as archive, pytest.raises(BaselineError, match="no module mine"):
        run_experiment(experiment, archive, pool=broken)
