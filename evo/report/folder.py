"""The folder a run leaves: best.cu, best.ptx, the plot and its numbers, the report."""

from __future__ import annotations

from pathlib import Path

from evo.archive import Archive
from evo.errors import EvoError
from evo.observer import RunSummary
from evo.plots import save
from evo.progress import time_text
from evo.report.history import history_of
from evo.report.markdown import report
from evo.writing import whole
from fitness.task import Task


def run_folder(archive: Path | str, run_id: str) -> Path:
    """Where the files of a run are: beside its archive."""
    return Path(archive).parent / run_id


def write_run_folder(archive: Archive, summary: RunSummary) -> tuple[Path, list[Path]]:
    """Write everything of one run that there is to write.

    A run without a valid candidate has no best kernel, one without a baseline no plot.

    Returns:
        The folder and the files in it.

    Raises:
        OSError: the folder cannot be written.
        EvoError: the archive does not hold the run.
    """
    run = archive.run(summary.run_id)
    if run is None:
        raise EvoError(f"run {summary.run_id} is not in archive {archive.path}")
    folder = run_folder(archive.path, run.id)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    if summary.best is not None:
        from evo.report.best import write_best  # the compiler's module: not for `run_folder`, which plots ask for

        task = Task.from_spec(run.experiment["task"])
        written += write_best(summary.best.kernel, task, run.arch, folder, best_note(summary, run.gpu))
    if summary.baseline:
        written += save(history_of(archive, run), folder)
    path = folder / "report.md"
    with whole(path) as unfinished:
        unfinished.write_text(report(archive, run, summary, [file.name for file in written]), encoding="utf-8")
    return folder, [*written, path]


def best_note(summary: RunSummary, gpu: str) -> str:
    """One line that says what the best kernel is, for the end of its source."""
    if summary.best is None:
        return f"evo run {summary.run_id}"
    times = ", ".join(time_text(timing.time_us) for timing in summary.best_timings)
    confirmed = "confirmed" if summary.confirmed else "not confirmed"
    return f"evo run {summary.run_id}, candidate {summary.best.plan.n} ({confirmed}): {times} {summary.clock}, {gpu}"
