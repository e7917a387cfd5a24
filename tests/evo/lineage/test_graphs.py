from __future__ import annotations

import json
import re

from evo.archive import Archive
from evo.lineage import Lineage, graphs
from evo.lineage.sketches import sketch_of
from mutations.operator import Candidate, Plan
from tests.evo import archives

EVIL = '"]; click n0 href "javascript:alert(1)" <script>'


def test_mermaid_and_dot_cannot_be_broken_out_of() -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive)
        archive.add_entries(run.id, [Candidate(Plan(6, 3, 0, EVIL, (5, 0)), archives.kernel("x"), EVIL)])
        lineage = Lineage(archive, run)
        nodes = [sketch_of(node) for node in (*lineage.ancestors(6), lineage.node(6))]
        mermaid, dot = "\n".join(graphs.as_mermaid(nodes, (1, 6))), "\n".join(graphs.as_dot(nodes, (1, 6)))
        data = graphs.graph_json(lineage, nodes)
    assert mermaid.startswith("flowchart TD\n")
    assert "n5 --> n6" in mermaid
    assert "n0 -.-> n6" in mermaid
    for label in re.findall(r'\["(.*)"\]', mermaid):
        assert not set(label.replace("<br>", "")) & set('"<>()[]')
    assert "class n1,n6 path" in mermaid
    for line in dot.splitlines():
        if "label=" in line:
            (label,) = re.findall(r'label=("(?:[^"\\]|\\.)*"), tooltip=', line)
            assert json.loads(label).startswith("#")
    assert {(edge["parent"], edge["child"]) for edge in data["edges"]} == {(1, 2), (2, 5), (5, 6), (0, 6)}  # type: ignore[attr-defined]
