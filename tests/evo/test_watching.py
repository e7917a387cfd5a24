"""Watching: what is said, when it ends, and what the server gives to whom."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from evo.archive import Archive
from evo.archive.lock import is_under_way, run_lock
from evo.cli.group import cli
from evo.errors import EvoError
from evo.watching import Server, follow, lines
from mutations.operator import Candidate, Plan
from tests.evo import archives


@pytest.fixture
def path(tmp_path: Path) -> Path:
    archives.make(tmp_path / "a.db")
    return tmp_path / "a.db"


def run_of(path: Path) -> str:
    with Archive.open(path, readonly=True) as archive:
        return archive.runs()[0].id


def judge_one_more(path: Path, n: int = 6) -> None:
    with Archive.open(path) as archive:
        run = archive.runs()[0].id
        archive.add_entries(run, [Candidate(Plan(n, 3, 0, "tune", (5,)), archives.kernel(f"k{n}"), "more")])
        archive.add_outcome(run, n, archives.timed(f"k{n}", 4.0, 4.0))


def test_lines(path: Path) -> None:
    run = run_of(path)
    with Archive.open(path, readonly=True) as archive:
        assert lines(archive, run) == [
            f"{run}: finished, generation 2",
            "candidates 6, judged 5, valid 4, duplicates 0, refused 1",
            "best 8 us modelled (#5, tune), 2.83x baseline, confirmed",
        ]


def test_a_killed_run_is_said_to_be_dead(path: Path) -> None:
    run = run_of(path)
    with Archive.open(path) as archive:
        archive.set_status(run, "running")
        assert not is_under_way(path, run)
        assert "killed?" in lines(archive, run)[0]
        with run_lock(path, run):
            assert is_under_way(path, run)
            assert lines(archive, run)[0] == f"{run}: running, generation 2"
    assert not Path(f"{path}.{run}.lock").exists()


def test_following_says_what_is_new_and_ends_with_the_run(path: Path) -> None:
    run = run_of(path)
    with Archive.open(path, readonly=True) as archive, run_lock(path, run) as _:
        following = follow(archive, run, 0.01)
        assert "judged 5" in next(following)[1]
        judge_one_more(path)  # while it is open for reading
        assert "judged 6" in next(following)[1]
    with Archive.open(path, readonly=True) as archive:
        assert len(list(follow(archive, run, 0.01))) == 1  # nobody works on it: once, and done


def get(url: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_the_server_updates_the_report_and_ends_with_the_run(path: Path) -> None:
    run = run_of(path)
    server = Server(path, run, 0)
    with run_lock(path, run):
        thread = threading.Thread(target=server.run, args=(0.02, 0.0))
        thread.start()
        status, first = get(server.url)
        assert status == 200
        assert "connect-src " in first
        _, before = get(server.url + "stamp")
        assert f'"live":"{before}"' in first
        judge_one_more(path)
        _, after = get(server.url + "stamp")
        assert after != before
        assert "candidate-6" in get(server.url)[1]
        assert get(server.url + "../etc/passwd")[0] == 404
        assert get(server.url, "evil.example:80")[0] == 403
    thread.join(timeout=10)
    assert not thread.is_alive()
    with pytest.raises(urllib.error.URLError):
        get(server.url)


def test_a_port_that_is_taken(path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(EvoError, match="name another one"):
            Server(path, run_of(path), taken.getsockname()[1])


def test_the_command(path: Path) -> None:
    for options in (["--once"], ["--interval", "0.1"], ["--once", "--serve", "0"]):
        result = CliRunner().invoke(cli, ["watch", "--archive", str(path), *options])
        assert result.exit_code == 0
        assert "2.83x baseline, confirmed" in result.output
    result = CliRunner().invoke(cli, ["watch", "nm42", "--archive", str(path)])
    assert result.exit_code == 1
    assert "did you mean nm24" in result.output


def test_a_run_without_a_candidate(tmp_path: Path) -> None:
    with Archive.open(tmp_path / "a.db") as archive:
        archives.empty(archive)
    result = CliRunner().invoke(cli, ["watch", "--archive", str(tmp_path / "a.db")])
    assert result.exit_code == 0
    assert "best: none yet" in result.output
