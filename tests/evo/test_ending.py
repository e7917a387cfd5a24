"""An error that ends a run leaves its traceback in the archive, and where people look."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo import ending
from evo.archive import Archive, keeping
from evo.loop import run_experiment
from evo.pool import PoolError
from evo.report.page import page
from evo.watching import lines
from tests.evo import archives, fakes
from tests.evo.test_loop import _world  # noqa: F401 -- fake seeds and operators, for every test here


def broken(what: str, n: int) -> None:
    if what == "judge" and n > 12:
        raise PoolError("No space left on device; free some", 'File "worker.py", line 7, in <work>')


def test_an_error_that_ends_a_run_is_kept_with_its_traceback() -> None:
    with Archive.memory() as archive:
        with pytest.raises(PoolError):
            run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(on_call=broken))
        (run,) = archive.runs()
        assert run.status == "failed"
        reason, traceback = ending.how(archive, run)
        assert reason == "PoolError: No space left on device; free some"
        assert traceback.startswith("Traceback")
        assert "in broken" in traceback
        assert traceback.endswith('In the worker:\nFile "worker.py", line 7, in <work>\n')
        assert lines(archive, run.id)[-1] == f"ended: {reason}"
        text = page(archive, run)
        assert f"The run failed: {reason}." in text
        assert "line 7, in &lt;work&gt;" in text

        run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(), resume=True)
        (run,) = archive.runs()
        assert ending.how(archive, run) == ("all generations done", "")
        assert "worker.py" not in page(archive, run)


@pytest.mark.parametrize(("said", "name"), [((), "Ctrl-C"), (("SIGTERM",), "SIGTERM")])
def test_ctrl_c_and_sigterm_are_no_errors(said: tuple[str, ...], name: str) -> None:
    def stop(what: str, n: int) -> None:
        if what == "judge" and n > 12:
            raise KeyboardInterrupt(*said)

    reason = f"by {name}; continue with --resume"
    with Archive.memory() as archive:
        summary = run_experiment(fakes.experiment(), archive, pool=fakes.FakePool(on_call=stop))
        (run,) = archive.runs()
        assert ending.how(archive, run) == (summary.reason, "") == (reason, "")
        assert ending.sentence(summary.status, summary.reason) == f"was interrupted: {reason}"


def test_a_very_long_traceback_keeps_its_end() -> None:
    with Archive.memory() as archive:
        run = archives.empty(archive)
        with pytest.raises(ValueError, match="aaa"), ending.ErrorsToArchive(archive, run.id):
            raise ValueError(100_000 * "a" + " the end")
        (event,) = archive.events(run.id, ending.ERROR)
    assert len(str(event.data["traceback"])) == 20_000
    assert str(event.data["traceback"]).endswith("the end\n")


def test_an_archive_that_cannot_be_written_hides_no_error(tmp_path: Path) -> None:
    archives.make(tmp_path / "a.db")
    archive = Archive.open(tmp_path / "a.db", readonly=True)
    with archive, pytest.raises(ValueError, match="the cause"), ending.ErrorsToArchive(archive, archive.runs()[0].id):
        raise ValueError("the cause")


def test_promoted_runs_carry_no_traceback(tmp_path: Path) -> None:
    run = archives.make(tmp_path / "a.db")
    with Archive.open(tmp_path / "a.db") as archive:
        archive.add_event(run.id, ending.ERROR, {"error": "x", "traceback": "/home/me"})
        archive.add_event(run.id, "end", {"status": "finished", "reason": "done"})
        keeping.promote(archive, [run.id], tmp_path / "library.db")
    with Archive.open(tmp_path / "library.db", readonly=True) as library:
        assert [event.kind for event in library.events(run.id)] == ["end"]
