"""Figures of one phase, written as they come: what a cut leaves behind is a whole JSON file."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_WRITE_S = 1.0


def provenance(command: str) -> dict[str, Any]:
    """Machine, driver, date, command; `card` is empty where there is no nvidia-smi."""
    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm,memory.used",
        "--format=csv,noheader",
    ]
    card = ""
    with suppress(OSError, subprocess.TimeoutExpired):
        card = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20).stdout.strip()
    return {"card": card, "host": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"), "command": command}  # fmt: skip


class Record:
    """What one phase found so far, in a file. Rows may come from several threads.

    Args:
        path: of the JSON file; the folder is made.
        command: what was typed.
        seconds: after which `left_s` is 0.
    """

    def __init__(self, path: Path, command: str, seconds: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._ends = path, time.monotonic() + seconds
        self.began, self._written = time.monotonic(), 0.0
        self._lock = threading.Lock()
        self.rows: list[dict[str, Any]] = []
        self.content: dict[str, Any] = {**provenance(command), "complete": False, "summary": "", "rows": self.rows}
        self.write()

    def left_s(self) -> float:
        """Seconds left of the phase's time."""
        return max(0.0, self._ends - time.monotonic())

    def over(self) -> bool:
        """True once the time is up: a `stop` for pools."""
        return self.left_s() <= 0.0

    def add(self, **row: Any) -> None:
        """One more row; on disk within a second of the next."""
        with self._lock:
            self.rows.append({**row, "at_s": round(time.monotonic() - self.began, 3)})
            if time.monotonic() - self._written > _WRITE_S:
                self.write()

    def put(self, **facts: Any) -> None:
        """Facts beside the rows; on disk at once."""
        self.content |= facts
        self.write()

    def finish(self, summary: str) -> None:
        """The phase has run to its end; its one line."""
        self.put(complete=not self.over(), summary=summary, seconds=round(time.monotonic() - self.began, 1))

    def write(self) -> None:
        """Replace the file as a whole."""
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(self.content, indent=1, default=float))
        os.replace(temporary, self.path)
        self._written = time.monotonic()


def _serve(work: Callable[..., Iterator[dict[str, Any]]], connection: Connection, arguments: tuple[Any, ...]) -> None:
    for row in work(*arguments):
        connection.send(row)
    connection.send(None)


def from_process(
    work: Callable[..., Iterator[dict[str, Any]]], *arguments: Any, seconds: float
) -> Iterator[dict[str, Any]]:
    """Rows that a generator yields in a fresh process, as they come.

    Where it breaks or overruns its seconds, the last row is {"died": why}.
    """
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(work, theirs, arguments), daemon=True)
    ends = time.monotonic() + seconds
    process.start()
    theirs.close()
    try:
        while True:
            if not ours.poll(max(0.0, ends - time.monotonic())):
                yield {"died": f"cut after {seconds:.0f} s"}
                return
            try:
                row = ours.recv()
            except EOFError:
                process.join(5)
                yield {"died": f"exit code {process.exitcode}"}
                return
            if row is None:
                return
            yield row
    finally:
        process.kill()
        process.join()
        ours.close()
