"""The gates in order: which outcome each kind of failure gives, what is run, what keeps the code key."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from fitness import confirmation, evaluate
from fitness.devices.device import Array, Checks, Execution, Inputs, Measurement, Program, Timeable, TimingError
from fitness.evaluate import Prepared, judge, prepare
from fitness.kernel import Kernel
from fitness.outcome import Finding, Gate, Outcome, Timed, WrongResult
from tests.fitness.fakes import DENSE, NumpyDevice, clean, dense_kernel, gemm_task, right

TASK = gemm_task((256, 24, 128), (256, 40, 128))
LARGE = gemm_task((512, 16, 2048))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.getbasetemp() / "evaluate-cache"  # shared: the same kernel over and over
    monkeypatch.setenv("EVO_CACHE", str(folder))
    return folder


def ended(how: Literal["finished", "fault", "trap", "steps", "unsupported"], *findings: Finding) -> NumpyDevice:
    def run(_program: Program, inputs: Inputs, _checks: Checks) -> Execution:
        return replace(clean(right(inputs)), ended=how, findings=findings)

    return NumpyDevice(runner=run)


def spoiled(**where: int) -> NumpyDevice:
    """Right, but one element is off at shapes of those sizes."""

    def run(_program: Program, inputs: Inputs, _checks: Checks) -> Execution:
        y = right(inputs)
        sizes = {"M": y.shape[1], "N": y.shape[0], "K": inputs.buffers["X"].shape[1]}
        if all(sizes[name] == size for name, size in where.items()):
            y[-1, -1] += np.float16(8)
        return clean(y)

    return NumpyDevice(runner=run)


def test_a_right_kernel_is_timed_at_every_shape_in_order() -> None:
    outcome = judge(dense_kernel(), TASK, NumpyDevice())
    assert isinstance(outcome, Timed)
    assert outcome.stage is Gate.TIMING
    assert [timing.shape for timing in outcome.timings] == list(TASK.shapes)
    first = outcome.timings[0]
    assert first.time_us == 1e3
    assert first.floor_us == TASK.floor_us(TASK.shapes[0], NumpyDevice().gpu)
    assert first.tflops == pytest.approx(2 * 256 * 24 * 128 / 1e-3 * 1e-12)
    assert outcome.resources.registers > 0
    assert outcome.resources.occupancy == 0.5
    assert outcome.code_key


def test_exact_number_of_device_calls_and_their_order_on_each_clock() -> None:
    modelled, measured = NumpyDevice(), NumpyDevice(clock="measured")
    judge(dense_kernel(), TASK, modelled)
    judge(dense_kernel(), TASK, measured)
    # six small runs, then two timed shapes and one hidden (on the simulator each twice: the whole grid with fewer
    # rows, sampled blocks at full size); one modelled time serves as screen and result
    assert modelled.calls == ["run"] * 6 + ["screen"] + ["run"] * 6
    assert measured.calls == ["run"] * 6 + ["run"] * 3 + ["screen", "time"]


def test_full_lists_are_longer() -> None:
    device = NumpyDevice()
    assert isinstance(judge(dense_kernel(), TASK, device, full=True), Timed)
    assert device.calls.count("run") > 30


def test_small_runs_have_all_checks_and_large_ones_only_bounds() -> None:
    device = NumpyDevice()
    judge(dense_kernel(), LARGE, device, steps=1000)
    small, whole, large = device.checks[0], device.checks[6], device.checks[7]
    assert (small.races, small.uninitialised, small.blocks, small.steps) == (True, True, None, 100)
    for checks in (whole, large):
        assert (checks.races, checks.uninitialised, checks.steps) == (False, False, 1000)
    assert whole.blocks is None
    assert large.blocks is not None
    (blocks,) = large.blocks
    assert {0, 512 // 64 * 16 - 1} <= set(blocks)
    assert len(blocks) <= 32


def test_costing_gets_the_same_program_at_two_smaller_k() -> None:
    device = NumpyDevice()
    judge(dense_kernel(), LARGE, device)
    (subject,) = device.timed
    assert [scale for scale, _, _ in subject.reduced] == [512 / 2048, 1024 / 2048]
    for scale, program, inputs in subject.reduced:
        assert program.launches[0].grid == subject.program.launches[0].grid
        assert inputs.buffers["X"].shape == (16, 2048 * scale)


def counting(at_small_k: int) -> NumpyDevice:
    """Takes one instruction per k at the full K, and `at_small_k` at each smaller one."""

    def run(_program: Program, inputs: Inputs, _checks: Checks) -> Execution:
        k = inputs.buffers["X"].shape[1]
        return replace(clean(right(inputs)), steps=k if k == 2048 or not at_small_k else at_small_k)

    return NumpyDevice(runner=run)


def test_a_kernel_that_a_smaller_k_does_not_predict_is_costed_at_the_full_k() -> None:
    regular, irregular = counting(0), counting(7)
    assert isinstance(judge(dense_kernel(), LARGE, regular), Timed)
    assert isinstance(judge(dense_kernel(), LARGE, irregular), Timed)
    # six small runs; the timed shape (whole grid, sampled blocks), twice more at smaller K; the hidden shape (both)
    assert regular.calls == ["run"] * 6 + ["screen"] + ["run"] * 6
    assert irregular.calls == [*regular.calls, "time"]
    assert [len(subject.reduced) for subject in irregular.timed] == [2, 0]


def test_a_program_that_does_not_survive_its_timing_has_that_verdict() -> None:
    class Spinning(NumpyDevice):
        def time(self, subjects: Sequence[Timeable], *, screen: bool) -> tuple[Measurement, ...]:  # noqa: ARG002
            raise TimingError(replace(clean(right(subjects[0].inputs)), ended="steps", steps=99))

    outcome = judge(dense_kernel(), TASK, Spinning())
    assert (outcome.kind, outcome.stage) == ("TimedOut", Gate.TIMING_SCREEN)


@pytest.mark.parametrize(("depth", "calls"), [(Gate.SMALL_RUN, 6), (Gate.CORRECTNESS, 12)])
def test_depth_names_the_last_gate(depth: Gate, calls: int) -> None:
    device = NumpyDevice()
    outcome = judge(dense_kernel(), TASK, device, depth=depth)
    assert isinstance(outcome, Timed)
    assert (outcome.stage, outcome.timings) == (depth, ())
    assert device.calls == ["run"] * calls


def error(kind: str) -> Finding:
    return Finding(Gate.SMALL_RUN, kind, "an error", 7)


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        (ended("finished", error("race")), "SanitizerFinding"),
        (ended("fault", error("out_of_bounds")), "SanitizerFinding"),
        (ended("trap"), "Crashed"),
        (ended("steps"), "TimedOut"),
        (ended("unsupported", error("unsupported_instruction")), "Unsupported"),
        (spoiled(), "WrongResult"),
    ],
)
def test_each_way_to_fail_in_a_small_run(device: NumpyDevice, kind: str) -> None:
    outcome = judge(dense_kernel(), TASK, device)
    assert (outcome.kind, outcome.stage, len(device.calls)) == (kind, Gate.SMALL_RUN, 1)
    assert outcome.findings
    assert outcome.findings[0].shape == TASK.small_shapes()[0]
    assert outcome.code_key


def test_warnings_of_a_run_do_not_decide() -> None:
    device = ended("finished", replace(error("bank_conflicts"), severity="warning"))
    outcome = judge(dense_kernel(), TASK, device)
    assert isinstance(outcome, Timed)
    assert [finding.kind for finding in outcome.findings] == ["bank_conflicts"] * len(outcome.findings)


def test_wrong_only_at_a_timed_shape() -> None:
    outcome = judge(dense_kernel(), TASK, spoiled(N=40, M=256))
    assert (outcome.kind, outcome.stage) == ("WrongResult", Gate.CORRECTNESS)
    assert outcome.findings[0].shape == TASK.shapes[1]
    assert outcome.findings[0].wrong is not None
    assert outcome.findings[0].wrong.wrong == 1


def test_wrong_only_at_the_hidden_shape_and_the_shape_stays_hidden() -> None:
    hidden = TASK.hidden_shapes(evaluate.HIDDEN_SEED)[0]
    assert hidden not in TASK.shapes
    outcome = judge(dense_kernel(), TASK, spoiled(**hidden))
    assert (outcome.kind, outcome.stage) == ("WrongResult", Gate.CORRECTNESS)
    (finding,) = outcome.findings
    assert finding.shape is None
    assert finding.wrong is not None
    assert (finding.wrong.first, finding.wrong.total) == ((0, 0), 0)
    assert str(hidden["N"]) not in finding.message


def idle(_program: Program, inputs: Inputs, checks: Checks) -> Execution:
    """Blocks beyond the first two do nothing where only some are looked at."""
    execution = clean(right(inputs))
    if checks.blocks is not None:
        written = np.zeros_like(execution.written["Y"])
        written[0, :64] = True
        return replace(execution, written={"Y": written})
    y: Array = execution.outputs["Y"].copy()
    if y.shape[1] >= 512:
        y[3, 128:] = np.nan
    return replace(execution, outputs={"Y": y})


def test_sampled_blocks_that_write_too_little_make_the_whole_grid_run() -> None:
    device = NumpyDevice(runner=idle)
    outcome = judge(dense_kernel(), LARGE, device)
    assert (outcome.kind, outcome.stage) == ("WrongResult", Gate.CORRECTNESS)
    # the whole grid with fewer rows, sampled blocks at full size, then all of them
    assert [checks.blocks is None for checks in device.checks[6:]] == [True, False, True]


def test_hopeless_ones_stop_at_the_screen() -> None:
    device = NumpyDevice(time_us=500.0)
    outcome = judge(dense_kernel(), TASK, device, incumbent_us=100.0)
    assert isinstance(outcome, Timed)
    assert outcome.stage is Gate.TIMING_SCREEN
    assert "hopeless" in [finding.kind for finding in outcome.findings]
    assert device.calls == ["run"] * 6 + ["screen"]
    assert judge(dense_kernel(), TASK, NumpyDevice(time_us=300.0), incumbent_us=100.0).stage is Gate.TIMING


def test_a_time_below_the_floor_is_no_record() -> None:
    outcome = judge(dense_kernel(), TASK, NumpyDevice(time_us=0.5))
    assert (outcome.kind, outcome.findings[0].kind) == ("Unsupported", "below_floor")


@pytest.mark.parametrize(
    ("kernel", "kind", "stage"),
    [
        (dense_kernel(DENSE.replace("K % 8", "N % 8")), "Rejected", Gate.PARSE),
        (dense_kernel(DENSE.replace("#include <cuda_fp16.h>", '#include "/etc/passwd"')), "Rejected", Gate.SCREEN),
        (dense_kernel(DENSE.replace("float sum", "flaot sum")), "CompileFailed", Gate.COMPILE),
        (dense_kernel(BM=2048), "LaunchFailed", Gate.COMPILE),
        (dense_kernel(SHARED=300000), "LaunchFailed", Gate.COMPILE),
    ],
)
def test_what_ends_before_anything_runs(kernel: Kernel, kind: str, stage: Gate) -> None:
    device = NumpyDevice()
    prepared, judged = prepare(kernel, TASK, device), judge(kernel, TASK, device)
    assert isinstance(prepared, Outcome)
    assert (prepared.kind, prepared.stage) == (judged.kind, judged.stage) == (kind, stage)
    assert prepared.findings == judged.findings
    assert prepared.findings[0].line
    assert not device.calls


def key(kernel: Kernel) -> str:
    prepared = prepare(kernel, TASK, NumpyDevice())
    assert isinstance(prepared, Prepared), prepared
    return prepared.code_key


def test_code_key_follows_the_code_not_the_text() -> None:
    plain = key(dense_kernel())
    assert key(dense_kernel(DENSE.replace("one thread", "a thread") + "// the end\n")) == plain
    assert key(dense_kernel(BM=128)) != plain
    assert key(dense_kernel(SHARED=4)) != plain
    assert key(dense_kernel(UNROLL=4)) != plain
    assert key(dense_kernel(DENSE.replace('about   = "', 'align   = 32\nabout   = "'))) != plain
    other = prepare(dense_kernel(), LARGE, NumpyDevice())
    assert isinstance(other, Prepared)
    assert other.code_key != plain


def test_gates_are_announced_as_they_are_entered() -> None:
    entered: list[Gate] = []
    judge(dense_kernel(), TASK, NumpyDevice(), on_gate=entered.append)
    assert entered == [Gate.PARSE, Gate.SCREEN, Gate.COMPILE, Gate.SMALL_RUN, Gate.TIMING_SCREEN,
                       Gate.CORRECTNESS, Gate.TIMING]  # fmt: skip


def test_outcomes_travel_and_repeat_exactly() -> None:
    first, second = (judge(dense_kernel(), TASK, NumpyDevice()) for _ in range(2))
    assert pickle.loads(pickle.dumps(first)) == first
    assert replace(first, cost=second.cost) == second


class LazyCard(NumpyDevice):
    """A measured clock; what its timed runs wrote is handed back, right or not."""

    wrote: float = 1.0

    def time(self, subjects: Sequence[Timeable], *, screen: bool) -> tuple[Measurement, ...]:
        taken = super().time(subjects, screen=screen)
        outputs = [{"Y": (self.wrote * right(subject.inputs)).astype(np.float16)} for subject in subjects]
        return tuple(replace(measured, outputs=(wrote,)) for measured, wrote in zip(taken, outputs, strict=True))


def test_what_is_written_while_timed_is_checked() -> None:
    device = LazyCard(clock="measured")
    outcome = judge(dense_kernel(), gemm_task(), device)
    assert isinstance(outcome, Timed)
    assert all(subject.reference_us > 0 for subject in device.timed)
    device.wrote = 0.0
    outcome = judge(dense_kernel(), gemm_task(), device)
    assert isinstance(outcome, WrongResult)
    assert outcome.stage == Gate.TIMING_SCREEN
    assert outcome.findings[0].message.startswith("right when checked, wrong while timed")


def test_confirmation_on_a_card_wants_the_same_bits() -> None:
    runs = 0

    def flickering(_program: Program, inputs: Inputs, _checks: Checks) -> Execution:
        nonlocal runs
        runs += 1
        y = right(inputs)
        y[0, 0] = np.nextafter(y[0, 0], np.float16(np.inf)) if runs % 7 == 0 and np.isfinite(y[0, 0]) else y[0, 0]
        return clean(y)

    steady = NumpyDevice(clock="measured")
    outcome = evaluate._Evaluation(dense_kernel(), gemm_task(), steady, full=True, steps=1_000)
    outcome.seed = evaluate.FRESH_SEED
    assert outcome.prepare() is None
    assert outcome.on_card() is None
    assert steady.calls.count("run") == confirmation.REPEATS
    outcome.device = NumpyDevice(clock="measured", runner=flickering)
    found = outcome.on_card()
    assert isinstance(found, WrongResult)
    assert found.findings[0].kind == "nondeterministic", found.findings
