"""Archive -> the curve of one run's best speedup so far, against what it cost."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from evo.archive import Archive, RunRecord, columns, facts
from evo.archive.calls import spendings
from evo.errors import EvoError
from evo.report.missing import untimed, without_numbers


def best_so_far(archive: Archive, run: RunRecord, over: str) -> tuple[tuple[float, float], ...]:
    """(x, best speedup) where it rises, and where the run ended.

    Args:
        archive: holds the run.
        run: its record.
        over: "generations", "evaluations", "seconds" or "dollars".

    Raises:
        EvoError: the run ended before its baseline was timed, has nothing valid, or its dollars are not known.
    """
    baseline = facts.baseline_us(archive, run.id)
    if baseline is None:
        raise untimed(run)
    points: list[tuple[float, float]] = []
    x, best = 0.0, None
    for now, time_us in _seconds(archive, run) if over == "seconds" else _counted(archive, run, over):
        x = now
        if time_us is not None and (best is None or baseline / time_us > best):
            best = baseline / time_us
            points = [*points[:-1], (x, best)] if points and points[-1][0] == x else [*points, (x, best)]
    if best is None:
        raise without_numbers(archive, run)
    return tuple(points) if points[-1][0] == x else (*points, (x, best))


def _counted(archive: Archive, run: RunRecord, over: str) -> Iterator[tuple[float, float | None]]:
    """(x, time) of every judged candidate, in order of n."""
    usd = _dollars(archive, run) if over == "dollars" else {}
    count, spent = 0, 0.0
    names = ("n", "generation", "kind", "reused_from", "time_us")
    for n, generation, kind, reused_from, time_us in columns.steps(archive, run.id, *names):
        spent += usd.get(n, 0.0)
        if kind is not None:
            count += reused_from is None
            yield float({"generations": generation, "evaluations": count, "dollars": spent}[over]), time_us


def _seconds(archive: Archive, run: RunRecord) -> Iterator[tuple[float, float | None]]:
    """(seconds of the run, time) of every judged candidate, in the order of their verdicts."""
    clock = _Elapsed([event.at for event in archive.events(run.id, "session")])
    for judged_at, time_us in columns.steps(archive, run.id, "judged_at", "time_us", judged=True):
        yield clock.at(judged_at), time_us


def _dollars(archive: Archive, run: RunRecord) -> dict[int | None, float]:
    """What each candidate spent on models."""
    usd: dict[int | None, float] = {}
    for n, model, spent in spendings(archive, run.id):
        if spent.usd is None:
            raise EvoError(f"the price of {model} was not known to run {run.id}", "plot evaluations or seconds instead")
        usd[n] = usd.get(n, 0.0) + spent.usd
    if not any(usd.values()):
        raise EvoError(f"run {run.id} spent nothing on a model", "plot evaluations or seconds instead")
    return usd


class _Elapsed:
    """Seconds a run has been under way, the time between its sessions left out. Ask in ascending order."""

    def __init__(self, starts: Sequence[str]) -> None:
        self._starts = sorted(_moment(start) for start in starts)
        self._before = 0.0
        self._session = 0
        self._last = self._starts[0] if self._starts else None

    def at(self, moment: str) -> float:
        now = _moment(moment)
        if self._last is None:
            self._starts, self._last = [now], now
        while self._session + 1 < len(self._starts) and now >= self._starts[self._session + 1]:
            self._before += max(0.0, self._last - self._starts[self._session])
            self._session += 1
            self._last = self._starts[self._session]
        self._last = max(self._last, now)
        return self._before + now - self._starts[self._session]


def _moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
