from __future__ import annotations

from evo.archive import Archive
from evo.lineage import Lineage
from evo.lineage.sketches import outline, sketch_of, sketches
from mutations.operator import Candidate, Plan
from tests.evo import archives


def test_sketches_say_of_a_run_what_its_nodes_say() -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive)
        archive.add_entries(run.id, [Candidate(Plan(6, 3, 0, "splice", (5, 0, 1)), archives.kernel("x"), "waits", "m")])
        archives.fill(archive, "other")
        lineage = Lineage(archive, run)
        found = list(sketches(lineage))
        assert found == [sketch_of(node) for node in lineage.nodes()]
        assert [one.verdict for one in found] == [
            "0.25x", "1.41x", "2.00x", "CompileFailed at gate compile", "refused", "2.83x", "not judged"
        ]  # fmt: skip
        assert (found[5].confirmed, found[6].parents) == ("confirmed", (5, 0, 1))
        for of in (None, 0, 2, 6):
            walked = [(place.node.n, place.depth, place.last) for place in lineage.walk(of)]
            assert [(one.n, one.depth, one.last) for one in outline(lineage, of)] == walked
