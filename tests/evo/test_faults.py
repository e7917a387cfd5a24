"""Faults of the machine while a run is under way, each made for real: full disks, other writers, two runs at once.

Whatever happens, no verdict is lost or doubled: the archive comes to hold what an undisturbed run would have left.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evo.archive import Archive
from tests.evo import fakes
from tests.evo.test_loop import content

ROOT = Path(__file__).resolve().parents[2]
LATEST_S = 120.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the fake seeds in `seeds`."""
    (tmp_path / "seeds").mkdir()
    for name in ("slow", "middle", "fast"):
        (tmp_path / "seeds" / f"fake_{name}.cu").write_text(fakes.source(name))
    (tmp_path / "seeds" / "dense_mma_pipelined.cu").write_text(fakes.source("dense", "dense"))
    return tmp_path


def command(folder: Path, archive: Path, *options: object) -> list[str]:
    arguments = [str(archive), str(folder / "seeds"), *(str(option) for option in options)]
    return [sys.executable, "-m", "tests.evo.one_run", *arguments]


@contextlib.contextmanager
def started(folder: Path, archive: Path, *options: object) -> Iterator[subprocess.Popen[str]]:
    """A run in another process; killed at the end of the block if it still goes on."""
    process = subprocess.Popen(
        command(folder, archive, *options), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def run(folder: Path, archive: Path, *options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, archive, *options), cwd=ROOT, capture_output=True, text=True, timeout=LATEST_S, check=False
    )


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for found in process.stdout:
        if found.strip() == line:
            return
    raise AssertionError(f"the run ended before {line!r}: {process.stderr.read() if process.stderr else ''}")


def only_content(archive: Path) -> dict[str, list[Any]]:
    """Of the only run of an archive, which is whole."""
    with Archive.open(archive, readonly=True) as opened:
        (record,) = opened.runs()
        assert record.status == "finished"
        assert opened.check() == []
    return content(archive, record.id)


@pytest.fixture
def undisturbed(folder: Path) -> dict[str, list[Any]]:
    done = run(folder, folder / "straight.db")
    assert done.returncode == 0, done.stderr
    return only_content(folder / "straight.db")


def resumed(folder: Path, archive: Path) -> dict[str, list[Any]]:
    done = run(folder, archive, "--resume")
    assert done.returncode == 0, done.stderr
    return only_content(archive)


def assert_one_line(stderr: str, *words: str) -> None:
    (line,) = stderr.splitlines()
    assert line.startswith("evo: ")
    for word in words:
        assert word in line


# -- the disk is full --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_file_that_may_not_grow_ends_the_run_and_loses_nothing(
    folder: Path, undisturbed: dict[str, list[Any]], share: float
) -> None:
    """The system refuses to make a file longer (RLIMIT_FSIZE): the log of the archive meets it in mid-run."""
    with Archive.open(folder / "empty.db"):
        pass
    empty, whole = ((folder / name).stat().st_size for name in ("empty.db", "straight.db"))
    archive = folder / "a.db"
    ended = run(folder, archive, "--file-bytes", int(empty + share * (whole - empty)))
    assert ended.returncode == 1, ended.stdout
    assert "judge" in ended.stdout
    assert_one_line(ended.stderr, "a.db", "disk", "--resume")
    assert resumed(folder, archive) == undisturbed


def _tmpfs(size: int, script: str) -> list[str]:
    """Runs a shell script in a mount namespace of its own in which $PWD/disk is a file system of `size` bytes."""
    mounted = f"mount -t tmpfs -o size={size} tmpfs disk && {{ {script}; }}"
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted]


def _can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    (folder / "disk").mkdir(exist_ok=True)
    return subprocess.run(_tmpfs(65536, "true"), cwd=folder, capture_output=True, check=False).returncode == 0


def test_a_full_disk_ends_the_run_and_loses_nothing(folder: Path, undisturbed: dict[str, list[Any]]) -> None:
    """A real file system without space left, then with some again."""
    if not _can_mount(folder):
        pytest.skip("this machine lets nobody mount a small file system")
    size = (folder / "straight.db").stat().st_size
    go, on = (shlex.join(command(folder, folder / "disk" / "a.db", *more)) for more in ([], ["--resume"]))
    script = (
        f"cd {shlex.quote(str(ROOT))}; {go} > {folder}/out 2> {folder}/error; echo $? > {folder}/code;"
        f" mount -o remount,size={64 << 20} {folder}/disk; {on} 2>&1;"
        f' {sys.executable} -c \'import sqlite3; sqlite3.connect("{folder}/disk/a.db").execute("vacuum into ?",'
        f' ["{folder}/kept.db"])\''
    )
    done = subprocess.run(
        _tmpfs(size, script), cwd=folder, capture_output=True, text=True, timeout=LATEST_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "code").read_text().strip() == "1", (folder / "out").read_text()
    assert "judge" in (folder / "out").read_text()
    assert_one_line((folder / "error").read_text(), "disk", "--resume")
    assert only_content(folder / "kept.db") == undisturbed


# -- other writers -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def write_lock(archive: Path) -> Iterator[None]:
    """The archive as another program holds it in the middle of a transaction."""
    other = sqlite3.connect(archive, timeout=30.0, isolation_level=None)
    other.execute("begin immediate")
    try:
        yield
    finally:
        other.execute("rollback")
        other.close()


def test_a_run_waits_for_another_writer(folder: Path, undisturbed: dict[str, list[Any]]) -> None:
    """The archive is locked in the middle of the run, for a while: the run goes on as if nothing had been."""
    archive = folder / "a.db"
    with started(folder, archive, "--pause", 0.02) as process:
        wait_for(process, "judge 12")
        with write_lock(archive):
            time.sleep(2.0)
            assert process.poll() is None
            with Archive.open(archive, readonly=True) as opened:
                (record,) = opened.runs()
                held = len(opened.outcomes(record.id))
        _, error = process.communicate(timeout=LATEST_S)
        assert process.returncode == 0, error
    assert held <= 14  # nothing was written past the lock
    assert only_content(archive) == undisturbed


def test_a_writer_that_does_not_let_go_ends_the_run_and_loses_nothing(
    folder: Path, undisturbed: dict[str, list[Any]]
) -> None:
    archive = folder / "a.db"
    with started(folder, archive, "--pause", 0.02, "--busy", 0.5) as process:
        wait_for(process, "judge 12")
        with write_lock(archive):
            _, error = process.communicate(timeout=LATEST_S)
        assert process.returncode == 1
    assert_one_line(error, "is locked by another program", "--resume")
    with Archive.open(archive, readonly=True) as opened:
        (record,) = opened.runs()
        assert 0 < len(opened.outcomes(record.id)) < len(undisturbed["outcomes"])
    assert resumed(folder, archive) == undisturbed


def test_two_runs_at_once_in_one_archive(folder: Path, undisturbed: dict[str, list[Any]]) -> None:
    """Two processes write to one archive side by side; each run is what it would be alone."""
    archive = folder / "a.db"
    options = ("--pause", 0.01, "--hold", folder / "go")
    with started(folder, archive, *options) as one, started(folder, archive, *options) as other:
        for process in (one, other):
            wait_for(process, "judge 3")
        (folder / "go").touch()  # both are under way, at the same place
        ids = []
        for process in (one, other):
            out, error = process.communicate(timeout=LATEST_S)
            assert process.returncode == 0, error
            ids.append(out.splitlines()[-1].split()[0])
    with Archive.open(archive, readonly=True) as opened:
        assert sorted(record.id for record in opened.runs()) == sorted(ids)
        assert {record.status for record in opened.runs()} == {"finished"}
        assert opened.check() == []
    assert content(archive, ids[0]) == content(archive, ids[1]) == undisturbed
