"""Bad archives: each gives one line that says what is wrong and how to mend it, and nothing is touched."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evo.archive import Archive, connection, keeping
from evo.archive.schema import VERSION
from evo.errors import ArchiveError
from mutations.operator import Candidate, Plan
from tests.evo import archives


def made(path: Path) -> Path:
    Archive.open(path).close()
    return path


def test_a_new_archive_has_the_tables_and_wal(tmp_path: Path) -> None:
    path = made(tmp_path / "runs" / "a.db")
    raw = sqlite3.connect(path)
    tables = {row[0] for row in raw.execute("select name from sqlite_master where type = 'table'")}
    assert {
        "runs", "kernels", "candidates", "parents", "outcomes", "timings", "confirmations", "llm_calls", "events"
    } <= tables  # fmt: skip
    assert raw.execute("pragma journal_mode").fetchone()[0] == "wal"
    assert raw.execute("pragma user_version").fetchone()[0] == VERSION
    raw.close()


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db")
    before = path.read_bytes()
    made(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("readonly", [False, True])
def test_not_sqlite(tmp_path: Path, readonly: bool) -> None:
    path = tmp_path / "a.db"
    path.write_text("this is a text file that is long enough to be looked at" * 9)
    with pytest.raises(ArchiveError, match=r"a\.db is not an SQLite database; choose another") as caught:
        Archive.open(path, readonly=readonly)
    assert "\n" not in str(caught.value)
    assert path.read_text().startswith("this is")


def test_somebody_elses_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    raw = sqlite3.connect(path)
    raw.execute("create table photos (id)")
    raw.close()
    with pytest.raises(ArchiveError, match="not an archive of evo"):
        Archive.open(path)
    assert sqlite3.connect(path).execute("select count(*) from sqlite_master").fetchone()[0] == 1


def test_a_newer_version(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db")
    raw = sqlite3.connect(path)
    raw.execute(f"pragma user_version = {VERSION + 1}")
    raw.close()
    for readonly in (False, True):
        with pytest.raises(ArchiveError, match=rf"newer evo \(archive version {VERSION + 1}.*upgrade evo"):
            Archive.open(path, readonly=readonly)


def test_a_folder_a_missing_file_an_impossible_place(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is a folder"):
        Archive.open(tmp_path)
    with pytest.raises(ArchiveError, match="does not exist; run an experiment first"):
        Archive.open(tmp_path / "none.db", readonly=True)
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match=r"cannot be used.*give a writable place"):
        Archive.open(tmp_path / "file" / "a.db")


@pytest.mark.parametrize(("which", "said"), [("a.db", "it is"), ("sub", "the folder /.*/sub is")])
def test_a_read_only_place_is_noticed_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, said: str
) -> None:
    path = made(tmp_path / "sub" / "a.db")
    monkeypatch.chdir(path.parent)
    # As for a user who may only read; the tests may run as root, who may write everywhere.
    monkeypatch.setattr(os, "access", lambda place, _mode: Path(place).resolve().name != which)
    named = rf"^archive a\.db cannot be written: {said} read-only for this user; give a writable place"
    with pytest.raises(ArchiveError, match=named):
        Archive.open("a.db")


def test_a_shipped_archive_in_a_read_only_folder_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "shipped" / "a.db")
    path.parent.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Archive.open(path, readonly=True) as archive:
        assert archive.runs() == []
    assert [entry.name for entry in path.parent.iterdir()] == ["a.db"]
    path.parent.chmod(stat.S_IRWXU)


def test_reading_does_not_write(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db")
    with Archive.open(path, readonly=True) as archive, pytest.raises(ArchiveError, match="cannot be written"):
        archive.set_status("x", "finished")


def test_locked_by_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "a.db")
    monkeypatch.setattr(connection, "BUSY_S", 0.05)
    holder = sqlite3.connect(path)
    holder.execute("begin exclusive")
    with pytest.raises(ArchiveError, match="locked by another program; close it there"), Archive.open(path) as archive:
        archive.add_event("x", "y", {})
    holder.rollback()
    made(path)


def test_two_processes_make_it_at_once(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def make() -> None:
        try:
            made(tmp_path / "a.db")
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_file_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait for the switch to WAL, only for locks of rows."""
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    threading.Timer(0.3, other.close).start()
    made(tmp_path / "a.db")


def test_damaged(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(ArchiveError, match="damaged"), Archive.open(path) as archive:
        archive.runs()


@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_a_write_cut_short_by_a_crash_is_rolled_back(tmp_path: Path, kept: float) -> None:
    """What a killed machine leaves: the database and a write-ahead log that ends in the middle of a row."""
    with Archive.open(tmp_path / "a.db") as archive:
        run = archives.fill(archive)
        archive.database.execute("pragma wal_checkpoint(truncate)").fetchall()
        for n in range(6, 16):
            archive.add_entries(run.id, [Candidate(Plan(n, 3, 0, "tune", (5,)), archives.kernel(f"k{n}"), "more")])
        log = (tmp_path / "a.db-wal").read_bytes()
        broken = tmp_path / "broken.db"
        broken.write_bytes((tmp_path / "a.db").read_bytes())
    broken.with_name("broken.db-wal").write_bytes(log[: int(len(log) * kept)])
    with Archive.open(broken) as archive:
        numbers = [entry.plan.n for entry in archive.entries(run.id)]
        assert numbers == list(range(len(numbers)))  # whole transactions from the start, no half one
        assert 6 <= len(numbers) < 16
        assert list(keeping.check(archive)) == []
        archive.add_entries(run.id, [Candidate(Plan(20, 3, 0, "tune", (5,)), archives.kernel("go on"), "more")])


@pytest.fixture
def half_changed(tmp_path: Path) -> Path:
    """A library (no WAL) that was half changed when its process was killed."""
    path = tmp_path / "library.db"
    archives.make(path)
    code = (
        "import os, sqlite3, sys\n"
        "raw = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "raw.execute('pragma journal_mode=delete')\n"
        "raw.execute('pragma cache_size=1')\n"
        "raw.execute('begin immediate')\n"
        "raw.execute('update candidates set reason = hex(zeroblob(9000))')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == -9
    assert path.with_name("library.db-journal").stat().st_size > 0
    return path


def test_readers_of_a_library_roll_back_what_a_killed_process_began(half_changed: Path) -> None:
    with Archive.open(half_changed, readonly=True) as archive:
        assert [entry.plan.n for entry in archive.entries(archive.runs()[0].id)] == [0, 1, 2, 3, 4, 5]
        assert list(keeping.check(archive)) == []
        assert len(archive.find("BM")) == 5
    assert not connection._journal(half_changed)


def test_a_half_changed_library_in_a_read_only_place_is_not_read(
    half_changed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without writing SQLite can only show it as it is: half changed."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ArchiveError, match=r"was being changed when a process was killed.*library.db-journal to a"):
        Archive.open(half_changed, readonly=True)


def test_a_library_can_be_read_while_it_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "library.db"
    archives.make(path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("pragma journal_mode=delete")
    writer.execute("begin immediate")
    writer.execute("update candidates set reason = 'underway'")
    assert connection._journal(path)
    for access in (True, False):
        monkeypatch.setattr(os, "access", lambda *_, access=access: access)
        with Archive.open(path, readonly=True) as archive:
            assert archive.find("underway") == []
    writer.execute("commit")
    writer.close()


def test_a_full_disk_can_still_be_read(tmp_path: Path) -> None:
    """SQLite makes an index of the log beside a file it reads, for which there is no space left."""
    with Archive.open(tmp_path / "a.db"):
        pass
    mounted = "mount -t tmpfs -o size=4m tmpfs disk && cp a.db disk && { cat /dev/zero > disk/fill 2> /dev/null; "
    reading = f'{sys.executable} -c "from pathlib import Path; from evo.archive import Archive; '
    reading += "print(Archive.open(Path('disk/a.db'), readonly=True).runs())\"; }"
    (tmp_path / "disk").mkdir()
    shell = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*shell, "mount -t tmpfs tmpfs disk"], cwd=tmp_path, capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this machine lets nobody mount a small file system")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [*shell, f"{mounted}{reading}"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr[-500:]
