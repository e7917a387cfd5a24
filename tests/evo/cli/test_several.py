"""`evo run` with several experiments: one budget, equal tasks judged once, the same experiment run once."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from evo.archive import Archive, Refused
from evo.archive.records import RunRecord
from evo.cli import jobs
from evo.cli.boundary import INTERRUPTED
from evo.cli.experiments import find
from evo.errors import ResumeError
from evo.evaluator import never
from evo.experiment import BudgetSection
from fitness.evaluate import Prepared
from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome
from fitness.task import Task
from tests.evo.cli.test_run import InstantPool, instant, run

__all__ = ["instant"]


def copied(name: str, *changes: tuple[str, str]) -> str:
    """The smoke experiment under another name, changed; in the current folder."""
    text = find("smoke").path.read_text(encoding="utf-8")
    for old, new in (('name     = "smoke"', f'name     = "{name}"'), *changes):
        assert old in text
        text = text.replace(old, new)
    Path(f"{name}.toml").write_text(text, encoding="utf-8")
    return f"{name}.toml"


OTHER_TASK = ('"K" = 256'.replace('"', ""), "K = 512")
OTHER_SEED = ("rng_seed = ", "rng_seed = 10")  # 1016 instead of 16, whatever it is
RUN = RunRecord(
    "a-1", "a", {}, 1, "simulator", "H200", "sm_90a", "modelled", "0", None, {}, "interrupted", "2026-01-01"
)


class Counting(InstantPool):
    """Keeps what it is asked: ("prepare", kernel id) and (gate, kernel id)."""

    asked: ClassVar[Counter[tuple[str, str]]] = Counter()

    def prepare(
        self, task: Task, kernels: Iterable[tuple[int, Kernel]], *, stop: Any = never
    ) -> Iterator[tuple[int, Prepared | Outcome]]:
        jobs = list(kernels)
        self.asked.update(("prepare", kernel.id) for _, kernel in jobs)
        return super().prepare(task, jobs, stop=stop)

    def judge(
        self,
        task: Task,
        kernels: Iterable[tuple[int, Kernel]],
        depth: Gate = Gate.TIMING,
        incumbent_us: float | None = None,
        *,
        full: bool = False,
        stop: Any = never,
    ) -> Iterator[tuple[int, Outcome]]:
        jobs = list(kernels)
        self.asked.update((depth.name, kernel.id) for _, kernel in jobs)
        return super().judge(task, jobs, depth, incumbent_us, full=full, stop=stop)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    monkeypatch.setattr(Counting, "asked", Counter())
    monkeypatch.setattr(jobs, "Pool", Counting)
    return Counting.asked


def judged_kernels() -> list[set[str]]:
    """Ids of the kernels of each run, oldest run first."""
    with Archive.open("runs/archive.db", readonly=True) as archive:
        found = sorted(archive.runs(), key=lambda record: record.started_at)
        return [
            {entry.kernel.id for entry in archive.entries(record.id) if not isinstance(entry, Refused)}
            for record in found
        ]


def test_equal_tasks_are_judged_once(counting: Counter[tuple[str, str]]) -> None:
    """Two searches of one task: every kernel is compiled and judged by whoever meets it first, the baseline once."""
    more = ("--set", "budget.evaluations=60", "--set", "search.generations=4", "--set", "search.children=6")
    code, out, _ = run(copied("first"), copied("second", OTHER_SEED), *more, "--json")
    assert code == 0
    first, second = judged_kernels()
    assert len(first & second) >= 2  # the seeds at least
    assert first != second
    asked = Counter(what for what, _ in counting.elements())
    assert asked["prepare"] == len(first | second)
    assert asked["TIMING"] == len(first | second) + 1  # and the baseline
    assert max(counting[call] for call in counting if call[0] in ("prepare", "TIMING")) == 1
    assert [result["shared"] for result in json.loads(out)] == [0, len(first & second)]


def test_what_was_shared_is_shown_and_archived() -> None:
    code, out, _ = run(copied("first"), copied("second", OTHER_SEED), "--quiet", "--set", "budget.evaluations=40")
    assert code == 0
    line = next(line for line in out.splitlines() if line.startswith("second-") and "shared" in line)
    count = int(line.partition("; ")[2].split()[0])
    with Archive.open("runs/archive.db", readonly=True) as archive:
        (one,), (other,) = archive.runs("first"), archive.runs("second")
        events = archive.events(other.id, "shared")
        assert len(events) == count >= 2
        assert not archive.events(one.id, "shared")
        theirs, ours = archive.outcomes(one.id), archive.outcomes(other.id)
        for event in events:
            run_id, _, n = event.data["from"].partition("/")
            assert run_id == one.id
            assert ours[event.data["n"]][0].code_key == theirs[int(n)][0].code_key
        assert archive.check() == []


def test_a_shared_verdict_costs_no_evaluation_and_resume_agrees() -> None:
    files = (copied("first"), copied("second", OTHER_SEED))
    code, out, _ = run(*files, "--set", "budget.evaluations=14", "--json")
    assert code == 0
    first, second = json.loads(out)
    spent = first["judged"] - first["duplicates"] + second["judged"] - second["duplicates"] - second["shared"]
    assert second["shared"] >= 2
    assert spent <= 14
    code, out, _ = run(
        files[1], "--resume", "--set", "budget.evaluations=40", "--set", "search.generations=3", "--json"
    )
    assert code == 0
    assert json.loads(out)["shared"] == second["shared"]


def told(archive: str) -> dict[str, Any]:
    """What an archive holds of the runs of each experiment but ids, moments and seconds; in order of n."""
    found: dict[str, Any] = {}
    with Archive.open(archive, readonly=True) as opened:
        names = {record.id: record.name for record in opened.runs()}
        for record in sorted(opened.runs(), key=lambda record: record.started_at):
            outcomes = opened.outcomes(record.id)
            shared = [
                (event.data["n"], names[event.data["from"].partition("/")[0]], event.data["from"].partition("/")[2])
                for event in opened.events(record.id, "shared")
            ]
            entries = [
                (entry.plan, None if isinstance(entry, Refused) else entry.kernel.id)
                for entry in opened.entries(record.id)
            ]
            verdicts = {n: (outcome.kind, outcome.code_key, reused) for n, (outcome, reused) in outcomes.items()}
            found[record.name] = (record.status, entries, verdicts, sorted(shared))
        assert opened.check() == []
        assert len(found) == len(names)  # no experiment was begun twice
    return found


MORE = (("children    = 3", "children    = 5"), ("generations = 2", "generations = 4"))
THREE = ("--set", "budget.evaluations=40", "--set", "budget.minutes=5")


@pytest.fixture
def three(instant: type[InstantPool]) -> tuple[str, ...]:
    """Three experiments, the last like the first but longer, run to the end in straight.db."""
    files = (copied("first"), copied("second", OTHER_TASK), copied("third", *MORE))
    assert run(*files, *THREE, "--archive", "straight.db", "--quiet")[0] == 0
    assert len(told("straight.db")["third"][3]) > 2  # verdicts that the third has of the first, not of seeds alone
    instant.judged = 0
    return files


@pytest.mark.parametrize("judged", [1, 6, 13, 20, 25])
def test_a_command_broken_off_goes_on_where_it_was(
    three: tuple[str, ...], instant: type[InstantPool], judged: int
) -> None:
    """In the first experiment, in the second, in the third before it has all verdicts of the first and behind that."""
    instant.interrupt_at = judged
    code, out, _ = run(*three, *THREE, "--archive", "broken.db", "--quiet")
    assert code == INTERRUPTED
    assert f"evo run {' '.join(three)} --resume" in out
    instant.interrupt_at = None
    code, out, _ = run(*three, *THREE, "--archive", "broken.db", "--quiet", "--resume")
    assert code == 0, out
    assert told("broken.db") == told("straight.db")


def test_a_run_of_a_command_goes_on_alone_with_what_the_others_found(
    three: tuple[str, ...], instant: type[InstantPool]
) -> None:
    instant.interrupt_at = 20
    run(*three, *THREE, "--archive", "broken.db", "--quiet")
    instant.interrupt_at = None
    code, _, err = run(three[2], *THREE, "--archive", "broken.db", "--quiet", "--resume")
    assert code == 0, err
    assert told("broken.db")["third"][1:] == told("straight.db")["third"][1:]


@pytest.mark.parametrize("together", [True, False], ids=["together", "alone"])
def test_verdicts_in_another_archive_are_found_by_the_command_and_missed_aloud_by_the_run_alone(
    instant: type[InstantPool], together: bool
) -> None:
    elsewhere = ("[budget]", '[archive]\npath = "elsewhere.db"\n\n[budget]')
    files = (copied("first"), copied("third", *MORE, elsewhere))
    instant.interrupt_at = 10
    assert run(*files, *THREE, "--quiet")[0] == INTERRUPTED
    instant.interrupt_at = None
    assert run(*(files if together else files[1:]), *THREE, "--quiet", "--resume")[0] == 0
    with Archive.open("elsewhere.db", readonly=True) as archive:
        (third,) = archive.runs()
        warnings = [event.data["message"] for event in archive.events(third.id, "warning")]
        shared = len(archive.events(third.id, "shared"))
    assert (shared > 2) == together
    assert any("not shared any more" in warning for warning in warnings) != together


def test_a_command_broken_off_between_two_experiments_begins_the_next(
    three: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the folder of a run is written the run is finished already."""

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "write_run_folder", Mock(side_effect=KeyboardInterrupt))
        assert run(*three, *THREE, "--archive", "broken.db", "--quiet")[0] == INTERRUPTED
    code, out, _ = run(*three, *THREE, "--archive", "broken.db", "--quiet", "--resume")
    assert code == 0, out
    assert told("broken.db") == told("straight.db")


def test_what_is_finished_or_was_never_begun_is_not_resumed(three: tuple[str, ...]) -> None:
    with pytest.raises(ResumeError, match="all runs of that command are finished"):
        jobs.run_all(three, jobs.Options(settings=THREE[1::2], archive=Path("straight.db"), quiet=True, resume=True))
    code, _, err = run(*three[:2], "--archive", "none.db", "--quiet", "--resume")
    assert code == 1
    assert "no run named first" in err


@pytest.mark.parametrize(
    "change",
    [OTHER_TASK, ('gpu  = "H200"', 'gpu  = "A100"'), ("[budget]", "[limits]\nrun_s = 50\n\n[budget]")],
    ids=["task", "card", "limits"],
)
def test_another_task_card_or_limit_is_judged_anew(change: tuple[str, str]) -> None:
    code, out, _ = run(copied("first"), copied("second", change), "--set", "budget.evaluations=40", "--json")
    assert code == 0
    assert [result["shared"] for result in json.loads(out)] == [0, 0]


def test_the_same_experiment_named_twice_is_run_once() -> None:
    code, out, err = run("smoke", "smoke.toml", str(find("smoke").path), "--json")
    assert code == 0
    assert err.count("is the same experiment as smoke; it is run once") == 2
    assert json.loads(out)["status"] in ("finished", "stopped")
    with Archive.open("runs/archive.db", readonly=True) as archive:
        assert len(archive.runs()) == 1


def test_several_experiments_share_the_first_ones_budget() -> None:
    code, out, _ = run(copied("first"), copied("second", OTHER_TASK), "--set", "budget.evaluations=11", "--json")
    assert code == 0
    first, second = json.loads(out)
    assert first["judged"] > 4
    assert 2 <= second["judged"] < first["judged"]
    assert first["judged"] + second["judged"] <= 11


def test_time_comes_to_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first took all the minutes, and layers of a model were never searched but for one."""

    class Slow(InstantPool):
        def judge(self, *given: Any, **more: Any) -> Any:
            for judged in super().judge(*given, **more):
                time.sleep(0.05)
                yield judged

    monkeypatch.setattr(jobs, "Pool", Slow)
    files = [
        copied(name, seed) for name, seed in (("first", OTHER_TASK), ("second", OTHER_SEED), ("third", OTHER_TASK))
    ]
    many = ("--set", "search.generations=500", "--set", "budget.evaluations=5000", "--set", "budget.minutes=0.06")
    code, out, _ = run(*files, *many, "--json")
    assert code == 0
    results = json.loads(out)
    assert len(results) == 3
    assert all(result["judged"] for result in results)


def test_a_share_of_time_is_found_again_when_a_command_goes_on() -> None:
    total = BudgetSection(minutes=10, evaluations=100)
    share = jobs._portion(total, 3)
    assert (share.minutes, share.evaluations) == (3.3333, 100)
    first = dataclasses.replace(RUN, experiment={"budget": share.model_dump()})
    second = BudgetSection(minutes=3.1, evaluations=60)
    run_of_it = dataclasses.replace(RUN, experiment={"budget": second.model_dump()})
    pool = jobs._pool_of(run_of_it, first, total, 3, 1)
    assert (pool.minutes, pool.evaluations) == (6.2, 60)
    assert jobs._portion(pool, 2) == second
    more = jobs._pool_of(run_of_it, first, BudgetSection(minutes=20, evaluations=150), 3, 1)
    assert more.minutes == pytest.approx(16.2)
    assert more.evaluations == 110


def test_left_over_budget_of_a_run_that_used_everything_up() -> None:
    code, out, _ = run(copied("first"), copied("second", OTHER_TASK), "--set", "budget.evaluations=6")
    assert code == 0
    assert "the shared budget is used up" in out
