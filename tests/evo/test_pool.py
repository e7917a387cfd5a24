"""The pool: results, isolation, faults, limits, and that nothing is left behind."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from evo.pool import CandidateLimits, DeviceSpec, Pool, PoolError
from fitness.evaluate import Prepared, judge
from fitness.outcome import Gate, Outcome, Timed
from tests.evo import cards
from tests.fitness.fakes import DENSE, MisbehavingDevice, NumpyDevice, dense_kernel, gemm_task

TASK = gemm_task()
VARIANTS = tuple(itertools.product((32, 64, 128), (1, 2)))
SPEC = DeviceSpec("tests.fitness.fakes:MisbehavingDevice", "H200")
# Twice as many instantiations at each of 26 levels: more than any compiler has time or memory for.
BOMB = DENSE.replace(
    'extern "C"',
    """template <int D, int I> struct Bomb {
  static constexpr int value = Bomb<D - 1, 2 * I>::value + Bomb<D - 1, 2 * I + 1>::value;
};
template <int I> struct Bomb<0, I> { static constexpr int value = I; };
extern "C\"""",
).replace("float sum = 0.0f", "float sum = Bomb<26, 0>::value")
# Loops in each other, all unrolled: 64 x 64 copies of a division keep the compiler busy for a minute and a half.
UNROLLED = DENSE.replace(
    "#pragma unroll UNROLL\n",
    """  float part[64] = {};
#pragma unroll
  for (int i = 0; i < 64; ++i)
#pragma unroll
    for (int k = 0; k < 64; ++k)
      if (k * 64 + i < K) part[i] = __fdiv_rn(part[i] + __half2float(W[(long long)m * K + k * 64 + i]), 1.5f);
#pragma unroll
  for (int i = 0; i < 64; ++i) sum += part[i];
""",
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path_factory.getbasetemp() / "pool-cache"))


@pytest.fixture(scope="module")
def shared() -> Iterator[Pool]:
    with Pool(SPEC, 2) as pool:
        yield pool


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pids: tuple[int, ...], within_s: float = 60.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def one(pool: Pool, **params: Any) -> Outcome:
    ((n, outcome),) = pool.judge(TASK, [(7, dense_kernel(**params))])
    assert n == 7
    return outcome


def test_prepares_and_judges_all_as_a_single_process_would(shared: Pool) -> None:
    kernels = {n: dense_kernel(BM=bm) for n, bm in enumerate((32, 64, 128, 2048))}
    prepared = dict(shared.prepare(TASK, kernels.items()))
    assert [type(prepared[n]).__name__ for n in range(4)] == ["Prepared"] * 3 + ["LaunchFailed"]
    judged = dict(shared.judge(TASK, kernels.items(), Gate.TIMING))
    for n, kernel in kernels.items():
        here = judge(kernel, TASK, NumpyDevice())
        assert (judged[n].kind, judged[n].findings, judged[n].code_key) == (here.kind, here.findings, here.code_key)
    first = prepared[0]
    assert isinstance(first, Prepared)
    assert first.code_key == judged[0].code_key


def test_depth_and_incumbent_are_passed_on(shared: Pool) -> None:
    ((_, shallow),) = shared.judge(TASK, [(1, dense_kernel())], Gate.SMALL_RUN)
    assert shallow.stage is Gate.SMALL_RUN
    ((_, hopeless),) = shared.judge(TASK, [(1, dense_kernel())], Gate.TIMING, 1.0)
    assert hopeless.stage is Gate.TIMING_SCREEN


def test_workers_see_no_keys_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("SOME_TOKEN", "secret")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "16")
    with Pool(SPEC, 1) as pool:
        outcome = one(pool, SHARED=5)
    assert outcome.kind == "Unsupported"
    assert [finding.message for finding in outcome.findings] == ["[] 1"]


def test_what_a_worker_prints_never_reaches_the_pipe(shared: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    assert isinstance(one(shared, SHARED=6), Timed)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("shared_bytes", "why"),
    [(2, "ValueError: a defect of the engine"), (1, "SIGKILL"), (3, "no answer within")],
    ids=["exception", "killed", "hangs"],
)
def test_what_the_engine_fails_on_twice_is_left_aside_and_the_others_go_on(shared_bytes: int, why: str) -> None:
    kernels = [(n, dense_kernel(BM=bm)) for n, bm in enumerate((32, 64, 128))]
    with Pool(SPEC, 1, CandidateLimits(hang_s=4.0)) as pool:
        judged = dict(pool.judge(TASK, [*kernels, (7, dense_kernel(SHARED=shared_bytes)), (8, dense_kernel())]))
        assert [judged[n].kind for n in (0, 1, 2, 8)] == ["Timed"] * 4
        (finding,) = judged[7].findings
        assert (judged[7].kind, judged[7].stage) == ("Unsupported", Gate.SMALL_RUN)
        assert (finding.kind, finding.gate) == ("engine_defect", Gate.SMALL_RUN)
        assert why in finding.message


def test_an_engine_that_fails_on_everything_is_a_pool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.pool._DEFECTS_IN_A_ROW", 2)  # each takes two workers
    kernels = [(n, dense_kernel(SHARED=2, BM=bm, UNROLL=unroll)) for n, (bm, unroll) in enumerate(VARIANTS)]
    said = r"2 candidates in a row.*a defect of the engine \(fakes.py, line \d+, run\)"
    with Pool(SPEC, 2) as pool, pytest.raises(PoolError, match=said) as caught:
        list(pool.judge(TASK, kernels))
    assert caught.value.__notes__[0].startswith("In the worker:\nTraceback")


def test_a_fault_of_the_machine_is_a_pool_error_of_one_line() -> None:
    with Pool(SPEC, 1) as pool:
        with pytest.raises(PoolError) as caught:
            one(pool, SHARED=7)
        assert re.fullmatch(r".*No space left on device.*--resume", str(caught.value))  # no sign stands for a new line
        assert caught.value.__notes__[0].startswith("In the worker:\nTraceback")
        assert isinstance(one(pool), Timed)  # and the pool can still be used


def test_a_worker_killed_once_is_replaced_unnoticed() -> None:
    with Pool(SPEC, 2) as pool:
        while not all(seat.ready for seat in pool._seats):  # one that dies while it starts is another matter
            assert isinstance(one(pool), Timed)
        before = pool.worker_pids()
        results = pool.judge(TASK, [(n, dense_kernel(BM=bm)) for n, bm in enumerate((32, 64, 128))])
        kinds = {next(results)[1].kind}
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        kinds |= {outcome.kind for _, outcome in results}
        assert kinds == {"Timed"}
        assert not set(before) & set(pool.worker_pids())
        assert gone(before)


def test_who_has_had_enough_does_not_wait_for_a_hanging_worker() -> None:
    with Pool(SPEC, 1) as pool:
        assert isinstance(one(pool), Timed)
        started = time.monotonic()
        kernels = [(1, dense_kernel(SHARED=3)), (2, dense_kernel())]
        assert list(pool.judge(TASK, kernels, stop=lambda: time.monotonic() > started + 0.5)) == []
        assert time.monotonic() < started + 30  # a slow machine; the worker would sleep for ten minutes
        assert isinstance(one(pool), Timed)


def test_memory_exhausted_by_a_run_is_the_candidates_doing() -> None:
    with Pool(SPEC, 1) as pool:
        outcome = one(pool, SHARED=4)
    assert (outcome.kind, outcome.stage, outcome.findings[0].kind) == ("LaunchFailed", Gate.SMALL_RUN, "out_of_memory")


@pytest.mark.parametrize("bomb", [BOMB, UNROLLED], ids=["templates", "unrolled"])
def test_a_compilation_that_takes_too_long_has_timed_out(bomb: str) -> None:
    assert bomb != DENSE
    with Pool(SPEC, 1, CandidateLimits(compile_s=1.0)) as pool:
        ((_, outcome),) = pool.prepare(TASK, [(1, dense_kernel(bomb))])
        assert isinstance(outcome, Outcome)
        assert (outcome.kind, outcome.stage, outcome.findings[0].kind) == ("TimedOut", Gate.COMPILE, "compile_timeout")
        assert isinstance(one(pool), Timed)


def test_a_compilation_that_takes_too_much_memory_has_failed() -> None:
    limits = CandidateLimits(memory_bytes=600 << 20, compile_s=60.0)
    with Pool(SPEC, 1, limits) as pool:
        ((_, outcome),) = pool.prepare(TASK, [(1, dense_kernel(BOMB))])
        assert isinstance(outcome, Outcome)
        assert (outcome.kind, outcome.stage, outcome.findings[0].kind) == (
            "CompileFailed",
            Gate.COMPILE,
            "compile_bomb",
        )


def test_a_vendor_routine_that_does_not_answer_is_told_so_once_and_the_next_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pool's clock leaps by two minutes whenever a routine begins to hang: no test waits for one."""
    leaping = SimpleNamespace(monotonic=lambda: time.monotonic() + 120.0 * cards.asked().count("hangs"))
    monkeypatch.setattr("evo.pool.time", leaping)
    limits = CandidateLimits(hang_s=90.0)  # what would end the wait were there no limit of its own
    with Pool(DeviceSpec("tests.evo.cards:RoutineCard", "H200"), 1, limits) as pool:
        before = pool.worker_pids()
        hanging, refusing = pool.vendor_times(TASK, ("hangs", "refuses"))
        assert gone(before)
    assert (hanging.name, hanging.timings, hanging.why_not) == ("hangs", (), "no answer within 60 s")
    assert (refusing.name, refusing.why_not) == ("refuses", "refuses does not take this task")
    assert cards.asked() == ["hangs", "refuses"]  # what hung is not tried again


def test_results_left_unread_do_not_reach_the_next_call() -> None:
    with Pool(SPEC, 2) as pool:
        results = pool.judge(TASK, [(n, dense_kernel(BM=bm)) for n, bm in enumerate((32, 64, 128))])
        next(results)
        cast("Generator[tuple[int, Outcome]]", results).close()
        assert [n for n, _ in pool.judge(TASK, [(9, dense_kernel())])] == [9]


def test_closing_ends_every_worker() -> None:
    with Pool(SPEC, 2) as pool:
        pids = pool.worker_pids()
        assert all(alive(pid) for pid in pids)
    assert gone(pids, within_s=10.0)
    with pytest.raises(PoolError, match="not open"):
        list(pool.judge(TASK, [(1, dense_kernel())]))


def test_a_device_that_does_not_exist_is_one_clear_error() -> None:
    with Pool(DeviceSpec("simulatr", "H200"), 1) as pool, pytest.raises(PoolError, match="simulator"):
        one(pool)


def test_no_workers_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="workers = 0"):
        Pool(SPEC, 0)


PARENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored
from evo.pool import DeviceSpec, Pool
from tests.fitness.fakes import dense_kernel, gemm_task
with Pool(DeviceSpec("tests.fitness.fakes:MisbehavingDevice", "H200"), 2) as pool:
    list(pool.prepare(gemm_task(), [(0, dense_kernel())]))
    print(*pool.worker_pids(), flush=True)
    list(pool.judge(gemm_task(), [(n, dense_kernel(SHARED=3)) for n in range(2)]))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_die_with_their_parent_however_it_dies(how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert parent.stdout is not None
    pids = tuple(int(word) for word in parent.stdout.readline().split())
    assert len(pids) == 2
    time.sleep(0.3)  # the workers are in the middle of a run
    os.killpg(parent.pid, how)  # as a terminal's Ctrl-C would: the whole group
    parent.wait(timeout=120)  # a slow machine is no orphan
    parent.stdout.close()
    assert gone(pids)


def test_devices_of_the_tests_agree() -> None:
    assert isinstance(judge(dense_kernel(), TASK, MisbehavingDevice(NumpyDevice().gpu)), Timed)
