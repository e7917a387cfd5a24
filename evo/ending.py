"""What is kept of an error that ends a run: an event of the archive with its traceback, a worker's included."""

from __future__ import annotations

import contextlib
import traceback
from types import TracebackType

from evo.archive import Archive, RunRecord
from evo.errors import ArchiveError
from evo.observer import Status

ERROR = "error"
"""Kind of the event: {"error": one line, "traceback": text}."""

_LONGEST = 20_000
"""Characters of a traceback that are kept: its end."""


class ErrorsToArchive(contextlib.AbstractContextManager[None]):
    """Archives the error that leaves the block, and lets it go on.

    Args:
        archive: open for writing.
        run_id: the run.
    """

    def __init__(self, archive: Archive, run_id: str) -> None:
        self._archive, self._run_id = archive, run_id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, Exception):
            return
        text = "".join(traceback.format_exception(error))[-_LONGEST:]
        with contextlib.suppress(ArchiveError):  # the error that ended the run is the one to show
            self._archive.add_event(self._run_id, ERROR, {"error": _line(error), "traceback": text})


def how(archive: Archive, run: RunRecord) -> tuple[str, str]:
    """Why a run ended, in one line, and the traceback of the error that ended it; empty where there is none.

    Raises:
        ArchiveError: the archive cannot be read.
    """
    told = [event for event in archive.events(run.id) if event.kind in ("end", ERROR)]
    if run.status == "running" or not told:
        return "", ""
    last = told[-1].data
    return str(last.get("reason") or last.get("error") or ""), str(last.get("traceback") or "")


def sentence(status: Status, reason: str) -> str:
    """How a run stands, for a sentence that begins with it: "was interrupted: by Ctrl-C"."""
    text = {"running": "is under way or was killed", "interrupted": "was interrupted"}.get(status, status)
    return f"{text}: {reason}" if reason else text


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
