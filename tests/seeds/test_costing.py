"""Seeds costed at two reduced K agree with the full K; those whose way data decide are costed at the full K."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.simulator.rank import subject
from fitness.devices.device import Checks, Timeable
from fitness.devices.simulator.simulator import Simulator
from fitness.devices.simulator.timing import program_time
from fitness.gpu import load
from fitness.kernel import load_kernel
from fitness.task import Task
from seeds import seed_paths

SHAPE = {"M": 1024, "K": 2048, "N": 32}
NM24 = ({"kind": "nm", "n": 2, "m": 4}, "float16")
RANDOM = ({"kind": "random", "density": 0.02}, "float32")
FULLER = ({"kind": "random", "density": 0.3}, "float32")
BLOCKS = ({"kind": "block", "shape": [32, 32], "density": 0.2}, "float16")


def timeable(seed: str, pattern: dict[str, Any], dtype: str) -> Timeable:
    """A seed at the shape, and at two reduced K if it has such."""
    (path,) = seed_paths(f"spmm/{seed}")
    task = Task.from_spec({"op": "spmm", "pattern": pattern, "dtype": dtype, "shapes": [SHAPE]})
    return subject(task, load_kernel(path), load("H200"), SHAPE)


@pytest.mark.parametrize(("seed", "task"), [("nm24_shared", NM24), ("csr_scalar", NM24), ("dia_rows", FULLER)])
def test_reduced_k_agrees_with_the_full_one_within_three_per_cent(seed: str, task: tuple[dict[str, Any], str]) -> None:
    whole, simulator = timeable(seed, *task), Simulator(load("H200"))
    reduced = program_time(simulator, whole)
    assert reduced.reduced_steps is not None
    assert len(reduced.reduced_steps) == 2
    full = program_time(simulator, Timeable(whole.program, whole.inputs))
    assert reduced.time_us == pytest.approx(full.time_us, rel=0.03)


@pytest.mark.parametrize(("seed", "task"), [("bitmap_mma", BLOCKS), ("bitmap_rows", RANDOM), ("csc_scatter", RANDOM)])
def test_where_data_decide_the_way_the_full_k_is_costed(seed: str, task: tuple[dict[str, Any], str]) -> None:
    whole, simulator = timeable(seed, *task), Simulator(load("H200"))
    time = program_time(simulator, whole)
    assert time.reduced_steps == ()
    assert time.time_us == program_time(simulator, Timeable(whole.program, whole.inputs)).time_us


@pytest.mark.parametrize("op", ["spmm", "spmv"])
def test_a_block_walks_only_diagonals_that_its_rows_meet(op: str) -> None:
    """Four times as many rows have nearly four times as many diagonals, but none more that meet W in one row."""

    def steps(rows: int) -> int:
        shape = {"M": rows, "K": 64} | ({"N": 16} if op == "spmm" else {})
        pattern = {"kind": "random", "density": 0.5}
        task = Task.from_spec({"op": op, "pattern": pattern, "dtype": "float32", "shapes": [shape]})
        (path,) = seed_paths(f"{op}/dia_*")
        one = subject(task, load_kernel(path), load("H200"), task.shapes[0])
        middle = one.program.launches[0].grid[0] // 2
        checks = Checks(races=False, uninitialised=False, blocks=((middle,),))
        run = Simulator(load("H200")).run(one.program, one.inputs, checks)
        assert run.ended == "finished"
        return run.steps

    assert steps(4096) < 1.2 * steps(1024)
