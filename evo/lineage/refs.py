"""What a REF on the command line names."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from evo.archive import Archive, RunRecord
from evo.errors import RefError
from evo.lineage.genealogy import Lineage


@dataclass(frozen=True)
class Found:
    """What a REF names: a run, and a candidate of it (None where the REF names the run as a whole).

    `passed_over`: ids of later runs that a REF without an id did not take, since they have no answer.
    """

    run: RunRecord
    n: int | None
    passed_over: tuple[str, ...] = ()


def resolve(archive: Archive, ref: str, *, latest: bool = False) -> Found:
    """Find what a REF names.

    Args:
        archive: where to look.
        ref: `nm24-7f3a` (a run), `nm24-7f3a/42`, `nm24-7f3a/best`; without an id the latest run that has an answer (a
            valid candidate): `best`, `42`, and of one experiment `nm24` or `experiments/nm24.toml`.
        latest: the latest run then, whatever came of it, and `best` is no candidate: for who watches a run or goes on
            with it.

    Raises:
        RefError: nothing of that name; the message suggests the nearest, or lists what there is.
    """
    runs = archive.runs()
    if not runs:
        raise RefError(f"archive {archive.path} holds no run", "run an experiment first")
    if not ref.strip("/ "):
        raise RefError("an empty name names no run", "write best, a run, or run/candidate")
    if ref.endswith(".toml"):
        run_part, candidate = _name_in(Path(ref)), ""
    elif "/" in ref:
        run_part, _, candidate = ref.rpartition("/")
    else:
        run_part, candidate = ("", ref) if ref.isdecimal() or ref == "best" else (ref, "")
    named = _runs_named(runs, run_part) if run_part or "/" in ref else runs
    run, passed_over = (named[0], ()) if latest else _answered(archive, named)
    if not candidate or (latest and candidate == "best"):
        return Found(run, None, passed_over)
    return Found(run, _candidate_named(archive, run, candidate), passed_over)


def _answered(archive: Archive, runs: list[RunRecord]) -> tuple[RunRecord, tuple[str, ...]]:
    """The first of these runs that has an answer, and those before it; just the first where none has."""
    for index, run in enumerate(runs):
        if len(runs) == 1 or Lineage(archive, run).best() is not None:
            return run, tuple(passed.id for passed in runs[:index])
    return runs[0], ()


def _name_in(path: Path) -> str:
    """Name of the experiment in a file."""
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8")).get("name", path.stem))
    except OSError as error:
        raise RefError(f"{path}: {error.strerror}", "name an experiment file, a run or a candidate") from error
    except ValueError as error:
        raise RefError(f"{path} is not TOML ({error})", "name an experiment file, a run or a candidate") from error


def _runs_named(runs: list[RunRecord], name: str) -> list[RunRecord]:
    """The run of that id, else those of that name, else those whose id begins so; the latest first."""
    for matches in (
        [run for run in runs if run.id == name],
        [run for run in runs if run.name == name],
        [run for run in runs if run.id.startswith(name) and name],
    ):
        if matches:
            return matches
    ids = [run.id for run in runs]
    names = list(dict.fromkeys([*ids, *(run.name for run in runs), "best"]))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"runs: {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''}"
    raise RefError(f'no run "{name}" in the archive', hint)


def _candidate_named(archive: Archive, run: RunRecord, candidate: str) -> int:
    lineage = Lineage(archive, run)
    if candidate == "best":
        return lineage.answer().n
    if not re.fullmatch(r"[0-9]{1,9}", candidate):
        close = difflib.get_close_matches(candidate, ["best"], n=1, cutoff=0.5)
        hint = "did you mean best?" if close else "write best, or a number such as 42"
        raise RefError(f'"{candidate}" is no candidate', hint)
    return lineage.node(int(candidate)).n
