"""Property: random CUDA snippets give, bit for bit, what NumPy says; and, marked `gpu`, what a card says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fitness.compile import compile_source
from fitness.devices.device import FULL_CHECKS, Compiled, Device, Inputs, Program
from fitness.gpu import load
from tests.fitness.simulator.engine import clean, launch, run
from tests.fitness.simulator.snippets import (
    BLOCKS,
    OPERATIONS,
    REGISTERS,
    THREADS,
    Expression,
    Statement,
    Words,
    arity,
    cuda,
    expected,
    snippets,
)

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


def words(seed: int) -> Words:
    """First values of the registers: random bits, small numbers and extremes."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, 1 << 32, BLOCKS * THREADS * REGISTERS, dtype=np.uint64).astype(np.uint32)
    small = random.random(drawn.size)
    drawn[small < 0.4] %= np.uint32(9)
    drawn[small > 0.95] = np.uint32(0x80000000)
    return drawn


def check(snippet: tuple[Statement, ...], seed: int) -> None:
    """The simulator agrees with NumPy, and finds nothing to complain of."""
    x = words(seed)
    execution = clean(
        run(cuda(snippet), launch("snippet", BLOCKS, THREADS, "x", "y"), {"x": x}, {"y": np.zeros_like(x)})
    )
    np.testing.assert_array_equal(execution.outputs["y"], expected(snippet, x), cuda(snippet))


@settings(max_examples=25, derandomize=True, **SETTINGS)  # type: ignore[arg-type]
@given(snippets(), st.integers(0, 99))
def test_snippets_equal_numpy(snippet: tuple[Statement, ...], seed: int) -> None:
    check(snippet, seed)


@pytest.mark.slow
@settings(max_examples=600, **SETTINGS)  # type: ignore[arg-type]
@given(snippets(), st.integers(0, 99))
def test_many_snippets_equal_numpy(snippet: tuple[Statement, ...], seed: int) -> None:
    check(snippet, seed)


def test_every_operation_by_itself() -> None:
    """All operations in a few kernels, each on random and extreme words."""
    names = sorted(OPERATIONS)
    registers = tuple(Expression("register", i) for i in range(3))
    for first in range(0, len(names), 4):
        for seed in range(2):
            some = names[first : first + 4]
            snippet: tuple[Statement, ...] = ()
            for name in some:  # register 3 takes in every result: 3 * old + new
                tripled = Expression("mul", 0, (Expression("register", 3), Expression("constant", 3)))
                result = Expression(name, 0, registers[: arity(name)])
                snippet += (Statement("set", 3, Expression("add", 0, (tripled, result))),)
            check(snippet, seed)


def test_the_oracle_by_hand() -> None:
    """A snippet small enough to follow: odd threads count their set bits, even ones take a neighbour's register."""
    is_odd = Expression("thread")
    odd = Statement("set", 0, Expression("popc", 0, (Expression("register", 1),)))
    even = Statement("shuffle", 0, Expression("register", 1), Expression("constant", 1))
    x = words(3)
    got = expected((Statement("if", 0, is_odd, is_odd, (odd,), (even,)),), x).reshape(-1, REGISTERS)
    start = x.reshape(-1, REGISTERS)
    assert got[5, 0] == bin(int(start[5, 1])).count("1")
    assert got[4, 0] == start[2, 1]  # lane 1 of the lanes 0, 2, 4, ... is lane 2
    assert got[40, 0] == start[34, 1]
    np.testing.assert_array_equal(got[:, 1:], start[:, 1:])


@pytest.fixture(scope="module")
def card() -> Iterator[Device]:
    from tests.fitness.devices.cuda.isolated import IsolatedCuda

    device = IsolatedCuda(load("H200"))
    yield device
    device.close()


@pytest.mark.gpu
@settings(max_examples=200, **SETTINGS)  # type: ignore[arg-type]
@given(snippet=snippets(), seed=st.integers(0, 99))
def test_snippets_equal_the_hardware(card: Device, snippet: tuple[Statement, ...], seed: int) -> None:
    x = words(seed)
    compiled = compile_source(cuda(snippet), arch=card.gpu.arch)
    assert isinstance(compiled, Compiled), compiled
    program = Program(compiled, (launch("snippet", BLOCKS, THREADS, "x", "y"),))
    execution = card.run(program, Inputs({"x": x}, {"y": np.zeros_like(x)}), FULL_CHECKS)
    assert execution.ended == "finished", execution.findings
    np.testing.assert_array_equal(execution.outputs["y"], expected(snippet, x), cuda(snippet))
