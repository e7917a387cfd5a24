"""Every combination that docs/formats.md says works, run once with every check on, each seed at a shape with tails."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.correctness import check
from fitness.devices.device import FULL_CHECKS, Program
from fitness.inputs import make_case
from fitness.program import build_program
from tests import support
from tests.seeds.running import H200, SIMULATOR, compiled


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("support")


def claims(op: str, pattern: str, format: str, dtype: str, folder: Path) -> None:  # noqa: A002
    found = support.support(op, pattern, format, dtype, folder)
    for name in found.seeds:
        kernel = support.kernels()[name]
        for layout in support.written_for(name)[1]:
            task = support.task_of(op, pattern, dtype, layout, folder)
            assert task is not None
            shape = task.small_shapes()[1]
            case = make_case(task, shape, kernel.format, seed=1, data="awkward", gpu=H200)
            program = build_program(kernel, compiled(kernel, task), case, H200)
            assert isinstance(program, Program), program
            execution = SIMULATOR.run(program, case.inputs, FULL_CHECKS)
            assert execution.ended == "finished", (name, layout, execution.findings)
            assert not execution.findings, (name, layout, execution.findings)
            assert check(case, execution.outputs, execution.written, sampled=False) is None, (name, layout)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "pattern", "format", "dtype"), list(support.combinations()))
def test_what_is_said_to_work_does(op: str, pattern: str, format: str, dtype: str, folder: Path) -> None:  # noqa: A002
    claims(op, pattern, format, dtype, folder)


#: A few that no other default test covers: patterns a format was not made for, vectors with the seeds of spmm.
QUICK = [
    ("spmm", "random", "dia", "float16"),
    ("spmm", "file", "sell", "bfloat16"),
    ("spmm", "banded", "blocked_ell", "float32"),
    ("spmm", "nm 4:8", "bitmap", "bfloat16"),
    ("spmv", "block", "bsr", "float32"),
    ("spmv", "periodic", "periodic", "float16"),
    ("spmv", "channels", "channels", "float32"),
    ("spmv", "power_law", "coo", "bfloat16"),
]


@pytest.mark.parametrize(("op", "pattern", "format", "dtype"), QUICK)
def test_some_of_what_is_said_to_work_does(op: str, pattern: str, format: str, dtype: str, folder: Path) -> None:  # noqa: A002
    assert support.support(op, pattern, format, dtype, folder).state == "works"
    claims(op, pattern, format, dtype, folder)
