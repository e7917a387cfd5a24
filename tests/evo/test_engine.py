"""What the engine costs by itself, at a third of the length of `benchmarks/engine.py`."""

from __future__ import annotations

import json

import pytest

from benchmarks import engine


def test_overhead_and_memory_per_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    """20 ms (of the CPU: other work on the machine does not count) and what a run remembers of a candidate."""
    engine.main(["--evaluations", "350", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["candidates"] == 350
    assert result["cpu_ms_per_candidate"] <= 20
    assert result["kib_per_candidate"] <= 64
