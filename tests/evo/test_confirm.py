"""Gate 8: fresh seeds, a fresh process, and who is asked."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from evo import confirm
from evo.archive import Archive, RunRecord
from evo.budget import Budget
from evo.pool import DeviceSpec, Pool
from evo.session import Session
from fitness.evaluate import judge
from fitness.outcome import Gate, Timed
from mutations.operator import Candidate, Plan
from tests.evo import fakes
from tests.fitness.fakes import NumpyDevice, clean, dense_kernel, gemm_task, right

TASK = gemm_task()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path_factory.getbasetemp() / "confirm-cache"))


def inputs_met(depth: Gate) -> list[bytes]:
    met = []

    def run(_program: object, inputs: object, _checks: object) -> object:
        met.append(np.ascontiguousarray(inputs.buffers["X"]).tobytes())  # type: ignore[attr-defined]
        return clean(right(inputs))  # type: ignore[arg-type]

    outcome = judge(dense_kernel(), TASK, NumpyDevice(runner=run), depth=depth, full=True)  # type: ignore[arg-type]
    assert isinstance(outcome, Timed)
    assert outcome.stage is depth
    return met


def test_confirmation_meets_data_the_search_has_not_met() -> None:
    search, confirmation, again = (inputs_met(gate) for gate in (Gate.TIMING, Gate.CONFIRMATION, Gate.CONFIRMATION))
    assert confirmation == again
    fresh = [data for data in confirmation if data not in search]
    assert len(fresh) > 20


def test_every_confirmation_has_its_own_process() -> None:
    kernels = [(n, dense_kernel(BM=bm)) for n, bm in enumerate((32, 64))]
    with Pool(DeviceSpec("tests.fitness.fakes:NumpyDevice", "H200"), 1) as pool:
        dict(pool.judge(TASK, kernels))
        first = pool.worker_pids()
        dict(pool.judge(TASK, kernels))
        assert pool.worker_pids() == first
        seen = {first}
        for _n, outcome in pool.judge(TASK, kernels, Gate.CONFIRMATION, full=True):
            assert outcome.stage is Gate.CONFIRMATION
            seen.add(pool.worker_pids())
    assert len(seen) == 3


def session(pool: fakes.FakePool, count: int) -> Session:
    """A session with `count` valid candidates, the fastest last."""
    archive = Archive.memory()
    experiment = fakes.experiment(search__confirm=2)
    run = RunRecord("", "fake", {}, 7, "simulator", "H200", "sm_90a", "modelled", "0", None, {}, "running", "2026")
    made = Session(
        experiment, archive, archive.add_run(run), pool, fakes.Watcher(), Budget(experiment.budget, time.monotonic)
    )
    made.baseline = "dense", fakes.timings(fakes.kernel("dense"), made.task)
    for n in range(count):
        candidate = Candidate(Plan(n, 0, 0, "seed"), fakes.kernel("fast", A=2 ** (n % 4), B=2 ** (n // 4)), "")
        made.archive_entries([candidate])
        made.budget.reserve("evaluations", 1)
        key = fakes.code_key(candidate.kernel)
        made.verdict(
            candidate, Timed(Gate.TIMING, code_key=key, timings=fakes.timings(candidate.kernel, made.task)), None
        )
    return made


def test_the_best_are_asked_and_archived() -> None:
    made = session(pool := fakes.FakePool(), 6)
    assert confirm.confirm_best(made)
    best = [judged.candidate.plan.n for judged in made.ranking()[:2]]
    assert list(made.confirmations) == best
    assert pool.calls == [("confirm", n) for n in best]
    assert made.archive.confirmations(made.run_id) == made.confirmations
    verdict = made.confirmations[best[0]]
    assert verdict.speedup == verdict.low == pytest.approx(verdict.high)
    assert made.archive.confirmation_timings(made.run_id, best[0])
    assert verdict.evidence["stage"] == "CONFIRMATION"


def test_while_all_are_refuted_the_next_are_asked_but_not_for_ever() -> None:
    made = session(pool := fakes.FakePool(refuted=lambda _kernel: True), 12)
    assert not confirm.confirm_best(made)
    assert pool.count("confirm") == 2 * confirm.ROUNDS
    assert made.tally.state().best is None or len(made.ranking()) == 12 - 2 * confirm.ROUNDS
    few = session(pool := fakes.FakePool(refuted=lambda _kernel: True), 3)
    assert not confirm.confirm_best(few)
    assert pool.count("confirm") == 3


def test_nobody_is_asked_twice() -> None:
    made = session(pool := fakes.FakePool(), 4)
    confirm.confirm_best(made)
    calls = len(pool.calls)
    again = Session(
        made.experiment,
        made.archive,
        made.record,
        pool,
        fakes.Watcher(),
        Budget(made.experiment.budget, time.monotonic),
    )
    again.baseline = made.baseline
    confirm.confirm(again, made.ranking()[:2])
    assert len(pool.calls) == calls
    assert again.confirmations == made.confirmations


class CardPool(fakes.FakePool):
    """Times what it confirms beside another kernel."""

    def compare_with(self, task: object, kernel: object) -> None:  # noqa: ARG002
        self.calls.append((f"beside {kernel.id}", -1))  # type: ignore[attr-defined]


def test_a_pool_of_cards_confirms_beside_the_best_seed() -> None:
    made = session(pool := CardPool(), 4)
    seed = made.best_seed()
    assert seed is not None
    assert confirm.confirm_best(made)
    assert pool.calls[0] == (f"beside {seed.candidate.kernel.id}", -1)
    assert pool.count("confirm") == 2


def test_a_confirmation_is_kept_though_the_next_one_is_broken_off() -> None:
    class Broken(fakes.FakePool):
        def judge(self, *arguments: Any, **more: Any) -> Any:
            yield next(iter(super().judge(*arguments, **more)))
            raise KeyboardInterrupt

    made = session(Broken(), 4)
    best = made.ranking()[0].candidate.plan.n
    with pytest.raises(KeyboardInterrupt):
        confirm.confirm_best(made)
    assert set(made.archive.confirmations(made.run_id)) == {best}
