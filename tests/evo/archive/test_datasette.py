"""The archive in a real datasette, over HTTP, with the metadata that comes with evo."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evo.archive import Archive, keeping
from tests.evo import archives

Get = Callable[[str], str]
_START_S = 60.0
_LIFE_S = 120.0


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.fixture(scope="module", name="get")
def _get(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Get]:
    """Fetches a path from a datasette that serves a small archive."""
    pytest.importorskip("datasette", reason="pip install '.[dev]'")
    path = tmp_path_factory.mktemp("datasette") / "archive.db"
    with Archive.open(path) as archive:
        archives.fill(archive)
    port = _free_port()
    arguments = ["serve", str(path), "--metadata", str(keeping.DATASETTE), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen([sys.executable, "-m", "datasette", *arguments], stderr=subprocess.PIPE, text=True)

    def get(where: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{where}", timeout=20) as answer:
            return str(answer.read().decode())

    try:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                get("/-/versions.json")
                break
            except (urllib.error.URLError, ConnectionError):
                if server.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"datasette does not start: {server.communicate(timeout=5)[1][-2000:]}")
                time.sleep(0.2)
        yield get
    finally:
        server.kill()
        server.communicate(timeout=_LIFE_S)


def rows(get: Get, where: str, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(get(f"/archive/{where}.json?{urllib.parse.urlencode(query)}&_shape=array"))
    return found


def test_views_are_served(get: Get) -> None:
    (best,) = rows(get, "best_per_task")
    assert best["speedup"] == pytest.approx(2 * 2**0.5)
    edges = {(row["parent_n"], row["child_n"]) for row in rows(get, "lineage_edges")}
    assert edges == {(1, 2), (0, 3), (1, 3), (0, 4), (2, 5)}
    (failure,) = rows(get, "failures_by_stage")
    assert (failure["stage"], failure["finding"]) == ("COMPILE", "unknown_api")
    assert {row["operator"] for row in rows(get, "cost_per_improvement")} == {"seed", "splice", "tune"}


def test_queries_of_the_metadata_answer(get: Get) -> None:
    (run,) = rows(get, "runs")
    assert [row["n"] for row in rows(get, "search", words="unknown OR mma")] == [1, 2, 3, 5]
    assert [row["n"] for row in rows(get, "path_to_seed", run_id=run["id"], n="5")] == [1, 2, 5]


def test_reasons_and_sources_can_be_searched(get: Get) -> None:
    assert rows(get, "candidates", _search="seed")
    assert rows(get, "sources", _search="mma")
    assert rows(get, "candidates", _search="nosuchword") == []


@pytest.mark.parametrize("table", ["runs", "candidates", "sources", "kernels", "outcomes", "timings", "best_per_task"])
def test_pages_show_what_a_table_is(get: Get, table: str) -> None:
    about = json.loads(keeping.DATASETTE.read_text(encoding="utf-8"))["databases"]["archive"]["tables"][table]
    assert about["description"].split(";")[0][:40] in get(f"/archive/{table}")
