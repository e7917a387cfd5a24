"""The trace tool on the real simulator, in its own process."""

from __future__ import annotations

from pathlib import Path

import pytest

import seeds
from evo.llm.tracing import trace_text
from fitness import gpu as gpus
from fitness.devices.simulator.tracing import Point
from fitness.kernel import Kernel, parse_kernel
from mutations.testing import nm24_task

GPU = gpus.load("H200")


def scalar() -> tuple[Kernel, int]:
    """The scalar seed and the line that writes its result."""
    path = Path(seeds.__file__).with_name("spmm") / "nm24_scalar.cu"
    text = path.read_text(encoding="utf-8")
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "y[n" in row)
    return parse_kernel(text, path=str(path)), line


def test_it_says_what_a_thread_wrote_and_where() -> None:
    kernel, line = scalar()
    text = trace_text(kernel, nm24_task(), GPU, Point(line, (1, 0, 0)))
    assert text.startswith(f"line {line}, thread (1, 0, 0) of block (0, 0, 0)")
    assert "st.global" in text
    assert "Y" in text.split("| at ")[1]


def test_what_hinders_it_is_said() -> None:
    kernel, line = scalar()
    assert "there is no thread" in trace_text(kernel, nm24_task(), GPU, Point(line, (9999, 0, 0)))
    assert "no instruction comes from line" in trace_text(kernel, nm24_task(), GPU, Point(2))


@pytest.mark.parametrize("limits", [(0.05, 8 << 30), (60.0, 250 << 20)])
def test_it_ends_at_its_limits(limits: tuple[float, int]) -> None:
    kernel, line = scalar()
    text = trace_text(kernel, nm24_task(), GPU, Point(line), limits)
    assert "took longer" in text or "too much memory" in text
    assert "/" not in text
