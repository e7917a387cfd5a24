"""Watching a run that another process works on: lines for a terminal, and the report on a port of this machine.

Reads the archive only; the run never notices. A run that is "running" while nobody holds its lock was killed.
"""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path

from evo import ending
from evo.archive import Archive, facts
from evo.archive.counts import counts
from evo.archive.lock import is_under_way
from evo.errors import EvoError, RefError
from evo.lineage import Lineage
from evo.progress import time_text
from evo.report.page import page

HOST = "127.0.0.1"
_GRACE_S = 5.0
"""How long the server stays after the run's end, so that an open page (it asks every 2 s) gets the last report."""


def stamp(archive: Archive, run_id: str) -> str:
    """Text that changes whenever the archive has something new about the run.

    Raises:
        RefError: no such run.
    """
    for row in facts.standing(archive, run_id):
        return ".".join(str(row[name]) for name in row.keys())  # noqa: SIM118 -- no dict, but a sqlite3.Row
    raise RefError(f"no run {run_id} in {archive.path}", "name one that is there")


def lines(archive: Archive, run_id: str) -> list[str]:
    """How the run stands, in a few lines.

    Raises:
        RefError: no such run.
    """
    lineage = Lineage(archive, run_id)
    row = next(facts.standing(archive, run_id))
    found = counts(archive, run_id)
    best = lineage.best()
    text = "best: none yet"
    if best is not None and best.time_us is not None:
        speedup = f", {best.speedup:.2f}x baseline" if best.speedup is not None else ""
        confirmed = f", {best.confirmation.verdict}" if best.confirmation is not None else ""
        text = (
            f"best {time_text(best.time_us)} {lineage.run.clock} (#{best.n}, {best.plan.operator}){speedup}{confirmed}"
        )
    generation = row["generation"] if row["generation"] is not None else "none"
    reason, _ = ending.how(archive, lineage.run)
    return [
        f"{run_id}: {status(archive.path, run_id, row['status'])}, generation {generation}",
        f"candidates {found.candidates}, judged {found.judged}, valid {found.valid}, "
        f"duplicates {found.duplicates}, refused {found.refused}",
        text,
        *([f"ended: {reason}"] if reason else []),
    ]


def status(archive: Path | str, run_id: str, recorded: str) -> str:
    """Status of a run in words; a run that nobody works on any more is said to be dead."""
    if recorded == "running" and not is_under_way(archive, run_id):
        return "not under way (killed? resume it with --resume)"
    return recorded


def follow(archive: Archive, run_id: str, interval_s: float) -> Iterator[list[str]]:
    """The run's lines now and after every change, until it ends; at most one look per `interval_s` seconds."""
    seen = ""
    while True:
        under_way = is_under_way(archive.path, run_id)  # asked first: what is read afterwards is the last
        current = stamp(archive, run_id)
        if current != seen:
            seen = current
            yield lines(archive, run_id)
        if not under_way:
            return
        time.sleep(interval_s)


class Server:
    """The report of a run on a port of this machine, made anew whenever the archive has changed.

    Args:
        archive: path of the archive; every request opens it for reading.
        run_id: the run.
        port: 0 takes a free one.

    Raises:
        EvoError: the port is taken.
    """

    def __init__(self, archive: Path, run_id: str, port: int) -> None:
        self._archive, self._run_id = archive, run_id
        self._lock = threading.Lock()
        self._made: tuple[str, bytes] = ("", b"")
        try:
            self._http = http.server.ThreadingHTTPServer((HOST, port), _handler(self))
        except OSError as error:
            raise EvoError(
                f"port {port} cannot be used ({error.strerror})", "name another one, or 0 for any"
            ) from error

    @property
    def url(self) -> str:
        """Where the report is."""
        return f"http://{HOST}:{self._http.server_address[1]}/"

    def run(self, interval_s: float = 1.0, grace_s: float = _GRACE_S) -> None:
        """Serve until the run has ended, or until interrupted."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            while is_under_way(self._archive, self._run_id):
                time.sleep(interval_s)
            time.sleep(grace_s)
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def stamp(self) -> bytes:
        """The archive's stamp."""
        with Archive.open(self._archive, readonly=True) as archive:
            return stamp(archive, self._run_id).encode()

    def page(self) -> bytes:
        """The report; the one made before while the archive has not changed."""
        with self._lock, Archive.open(self._archive, readonly=True) as archive:
            current = stamp(archive, self._run_id)
            if current != self._made[0]:
                text = page(archive, Lineage(archive, self._run_id).run, live=current)
                self._made = (current, text.encode())
            return self._made[1]


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    contents: dict[str, tuple[str, Callable[[], bytes]]] = {
        "/": ("text/html; charset=utf-8", server.page),
        "/stamp": ("text/plain; charset=utf-8", server.stamp),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        """Two pages, for this machine only: another host's name in the request is refused (DNS rebinding)."""

        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if host not in (HOST, "localhost"):
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path not in contents:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                kind, make = contents[self.path]
                try:
                    body = make()
                except EvoError as error:
                    self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
                    return
                self.send_response(HTTPStatus.OK)
                for name, value in (
                    ("Content-Type", kind),
                    ("Content-Length", str(len(body))),
                    ("Cache-Control", "no-store"),
                ):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name http.server gives
            """Say nothing: the terminal belongs to the user."""

    return Handler
