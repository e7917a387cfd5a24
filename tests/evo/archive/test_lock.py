from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from evo.archive.lock import run_lock
from evo.errors import ResumeError


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    with run_lock(tmp_path / "a.db", "x-1"):
        with pytest.raises(ResumeError, match="x-1 is under way"), run_lock(tmp_path / "a.db", "x-1"):
            pass
        with run_lock(tmp_path / "a.db", "x-2"):
            pass
    with run_lock(tmp_path / "a.db", "x-1"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_holder_frees_it(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with run_lock(tmp_path / "a.db", "x-1"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with run_lock(tmp_path / "a.db", "x-1"):
        pass


def test_memory_needs_none() -> None:
    with run_lock(":memory:", "x"), run_lock(":memory:", "x"):
        pass
