"""One process per run: an advisory lock that the system releases even when the process is killed."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from evo.errors import ResumeError


@contextlib.contextmanager
def run_lock(archive: Path | str, run_id: str) -> Iterator[None]:
    """Hold the run for the block, by a lock file beside the archive (removed afterwards).

    Raises:
        ResumeError: another process works on this run right now.
    """
    if str(archive) == ":memory:":
        yield
        return
    path = Path(f"{archive}.{run_id}.lock")
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResumeError(
                f"run {run_id} is under way in another process", "wait for it, or stop it and resume then"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def is_under_way(archive: Path | str, run_id: str) -> bool:
    """True while a process holds the run's lock. Makes no file."""
    path = Path(f"{archive}.{run_id}.lock")
    try:
        with path.open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
