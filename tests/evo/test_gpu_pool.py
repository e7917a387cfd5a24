"""The pool for cards: the simulator first, the card for what survives. The card is a stand-in here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evo.evaluator import VendorTimes
from evo.gpu_pool import GpuPool, go_on
from evo.pool import DeviceSpec, Pool
from fitness.outcome import Finding, Gate, Timed, TimedOut, Unsupported, WrongResult
from tests.fitness.fakes import DENSE, dense_kernel, gemm_task

WRONG = DENSE.replace("sum += ", "sum -= ")


@pytest.fixture(scope="module")
def pool() -> Iterator[GpuPool]:
    """Its "card" is a process of NumPy's: right on all dense products."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evo.gpu_pool.CARD", "tests.fitness.fakes:MisbehavingDevice")
        with GpuPool("H200", [0], 1, per_card=1) as opened:
            yield opened


def test_wrong_kernels_never_reach_the_card(pool: GpuPool) -> None:
    kernels = [(0, dense_kernel()), (1, dense_kernel(WRONG)), (2, dense_kernel(BM=32))]
    outcomes = dict(pool.judge(gemm_task(), kernels))
    assert isinstance(outcomes[1], WrongResult)
    assert outcomes[1].stage == Gate.SMALL_RUN
    for n in (0, 2):
        outcome = outcomes[n]
        assert isinstance(outcome, Timed), outcome.findings
        assert outcome.timings[0].time_us == 1e3  # the stand-in's time, not the simulator's
    assert len(pool.worker_pids()) == 2


def test_a_stopped_call_ends(pool: GpuPool) -> None:
    assert list(pool.judge(gemm_task(), [(0, dense_kernel())], stop=lambda: True)) == []


def test_leaving_early_leaves_a_usable_pool(pool: GpuPool) -> None:
    kernels = [(n, dense_kernel(BM=bm)) for n, bm in enumerate((32, 64))]
    for _ in pool.judge(gemm_task(), kernels):
        break
    assert len(dict(pool.judge(gemm_task(), kernels))) == 2


def test_only_a_pool_of_cards_times_vendors() -> None:
    assert isinstance(GpuPool("H200", [0], 1), VendorTimes)
    assert not isinstance(Pool(DeviceSpec("simulator", "H200"), 1), VendorTimes)


def test_only_what_the_simulator_cannot_say_goes_on() -> None:
    told = Finding(Gate.SMALL_RUN, "unsupported", "wgmma of tf32")
    assert go_on(Timed(Gate.SMALL_RUN)) == ()
    assert go_on(WrongResult(Gate.SMALL_RUN)) is None
    for outcome in (Unsupported(Gate.SMALL_RUN, (told,)), TimedOut(Gate.SMALL_RUN, (told,))):
        notes = go_on(outcome)
        assert notes is not None
        assert "wgmma of tf32" in notes[0].message
        assert notes[0].severity == "note"
    assert go_on(TimedOut(Gate.COMPILE, (told,))) is None


def test_the_workers_of_a_card_share_one_lock() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evo.gpu_pool.CARD", "tests.fitness.fakes:MisbehavingDevice")
        pool = GpuPool("H200", [0, 1], 1, per_card=3)
    locks = [card.device.lock for card in pool._cards]
    assert len(locks) == 6
    assert sorted(locks.count(lock) for lock in set(locks)) == [3, 3]
    pool.close()
