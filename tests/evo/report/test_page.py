"""The report as HTML: whole without JavaScript, safe with anybody's archive, the same bytes each time."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmarks.archive_scale import synthetic
from evo.archive import Archive
from evo.cli import report as command
from evo.lineage import Lineage
from evo.report import page as pages
from evo.report.page import page
from evo.report.payload import selection
from evo.report.toml import as_toml
from fitness.outcome import CompileFailed, Finding, Gate
from mutations.operator import Candidate, Plan
from tests.evo import archives

EVIL = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}<!--"


class Reader(HTMLParser):
    """Every table's cells, and every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.tables[-1][-1][-1] += data

    def table(self, head: str) -> list[list[str]]:
        (found,) = (table for table in self.tables if table[0][0] == head)
        return found[1:]


@pytest.fixture
def archive() -> Archive:
    archive = Archive.memory()
    archives.fill(archive)
    return archive


def test_the_tables_say_it_all_without_javascript(archive: Archive) -> None:
    read = Reader(page(archive, archive.runs()[0]))
    shapes = read.table("shape")
    assert [row[4] for row in shapes] == ["2.00×", "4.00×", "2.83×"]
    assert shapes[0][5] == "none"  # the modelled clock has no interval
    assert shapes[2][6] == "2.00×"  # over the best seed
    candidates = next(table for table in read.tables if table[0][-1] == "reason")[1:]
    assert [row[0] for row in candidates] == ["#0", "#1", "#2", "#3", "#4", "#5"]
    assert [row[4] for row in candidates] == ["valid", "valid", "valid", "CompileFailed", "refused", "confirmed"]
    (path,) = (table[1:] for table in read.tables if table[0][-1] == "gain")
    assert [row[0] for row in path] == ["#1", "#2", "#5"]
    assert [row[-1] for row in path] == ["", "1.414×", "1.414×"]
    (failure,) = read.table("candidates")
    assert failure[:5] == ["1", "compile", "CompileFailed", "unknown_api", "#3"]
    assert failure[5] == "__shfl is not there use __shfl_sync"
    assert {row[0]: row[3] for row in read.table("operator")} == {"seed": "2", "splice": "0", "tune": "2"}


def test_it_needs_no_network(archive: Archive) -> None:
    text = page(archive, archive.runs()[0])
    for tag, attributes in Reader(text).elements:
        assert tag not in ("link", "iframe", "object", "embed", "img")
        for name in ("src", "href", "xlink:href", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith("#"), (tag, value)
    assert not re.search(r"url\((?!#)|@import", text)


def test_only_its_own_script_may_run(archive: Archive) -> None:
    text = page(archive, archive.runs()[0])
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(a["content"] for t, a in Reader(text).elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src" not in policy


def test_an_archive_of_a_stranger_stays_data(archive: Archive) -> None:
    run = archive.runs()[0]
    child = Candidate(Plan(6, 3, 0, EVIL, (5,)), archives.kernel(EVIL.replace('"', "'"), BM=64), EVIL, EVIL)
    archive.add_entries(run.id, [child])
    archive.add_outcome(run.id, 6, CompileFailed(Gate.COMPILE, (Finding(Gate.COMPILE, EVIL, EVIL, 1, EVIL),)))
    archive.database.execute("update runs set name = ?, gpu = 'H200', machine = ?", [EVIL, json.dumps({EVIL: EVIL})])
    archive.add_event(run.id, "end", {"reason": EVIL})
    found = archive.run(run.id)
    assert found is not None
    text = page(archive, found)
    for tag in ("<img", "<script>alert", "{{7*7}}<", "onerror=alert(2)>"):
        assert tag not in text, tag
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", text)
    tags = [tag for tag, _ in Reader(text).elements]
    assert tags.count("style") == 1 + sum(tag == "svg" for tag in tags)
    candidates = next(table for table in Reader(text).tables if table[0][-1] == "reason")
    assert candidates[-1][-1] == EVIL


def parts(text: str) -> tuple[dict[str, object], list[dict[str, object]]]:
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    chunks = re.findall(r'<script type="application/octet-stream" id="chunk-\d+">(.*?)</script>', text)
    return json.loads(data), [json.loads(gzip.decompress(base64.b64decode(chunk))) for chunk in chunks]


def test_the_script_gets_sources_verdicts_and_times(archive: Archive) -> None:
    data, chunks = parts(page(archive, archive.runs()[0]))
    nodes = {node["n"]: node for node in data["nodes"]}  # type: ignore[attr-defined]
    assert data["best"] == 5
    assert data["live"] is None
    assert nodes[3]["parents"] == [0, 1]
    assert nodes[4]["source"] is None
    sources = chunks[data["sources"][nodes[5]["source"]]]  # type: ignore[index]
    assert sources[str(nodes[5]["source"])] == archives.kernel("mma").source
    details = chunks[data["details"][0]]  # type: ignore[index]
    assert details["5"]["params"] == {"BM": 64, "BN": 8}  # type: ignore[index]
    assert details["5"]["times"][0][:4] == ["M=4096 K=4096 N=16", "8 us", "2.00×", "50 %"]  # type: ignore[index]
    assert details["3"]["findings"] == [["unknown_api", "COMPILE", "14", "__shfl is not there", "use __shfl_sync"]]  # type: ignore[index]


def test_the_same_bytes_each_time(archive: Archive) -> None:
    run = archive.runs()[0]
    assert page(archive, run) == page(archive, run)


def test_a_run_that_has_just_begun() -> None:
    with Archive.memory() as archive:
        run = archives.empty(archive)
        text = page(archive, run)
    assert "No valid candidate yet." in text
    assert "under way or was killed" in text


def test_a_large_run_shows_the_ancestors_of_the_answer_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    (run_id,) = synthetic(tmp_path / "a.db", 600, children=20, lines=3)
    with Archive.open(tmp_path / "a.db", readonly=True) as archive:
        lineage = Lineage(archive, run_id)
        chosen = selection(lineage, 60)
        best = lineage.answer()
        assert 60 <= len(chosen) < 100
        assert {node.n for node in lineage.ancestors(best.n)} | {best.n} <= chosen
        for n in chosen:
            parents = lineage.node(n).plan.parents
            assert not parents or parents[0] in chosen
        text = page(archive, lineage.run, limit=60)
    assert f"{len(chosen)} of 600 candidates" in text


def test_the_experiment_comes_back(archive: Archive) -> None:
    experiment = {
        "name": 'a "quoted" \\ name\u007f\n',
        "rng_seed": 3,
        "budget": {"minutes": 4.0, "tokens": None},
        "task": {"pattern": {"kind": "nm", "n": 2, "m": 4}, "shapes": [{"M": 1, "K": 2}], "free": ["N"], "none": {}},
        "llm": {"models": [], "on": True},
        "odd key": 1e-7,
    }
    read = tomllib.loads(as_toml(experiment))
    del experiment["budget"]["tokens"]  # type: ignore[attr-defined]
    assert read == experiment
    run = archive.runs()[0]
    shown = re.search(r"every default</summary><pre[^>]*><code>(.*?)</code>", page(archive, run), re.DOTALL)
    assert shown is not None
    import html

    assert tomllib.loads(html.unescape(shown[1])) == run.experiment


def test_the_command_knows_the_default() -> None:
    assert command.SHOWN == pages.SHOWN
