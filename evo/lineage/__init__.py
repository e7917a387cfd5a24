"""Genealogy: where a kernel came from and what became of it. Reads through the archive only.

    from evo.archive import Archive
    from evo.lineage import Lineage, resolve

    with Archive.open("runs/archive.db", readonly=True) as archive:
        found = resolve(archive, "best")
        lineage = Lineage(archive, found.run)
        for step in lineage.path(found.n): ...      # from the seed to it, with what changed at each step

A candidate's *line* follows its first parent; `ancestors` follows all of them. Nodes read their kernel and verdict
when they are asked for them, so the archive must stay open. docs/lineage.md has examples.
"""

from evo.lineage.blame import Blame, BlamedLine, blame
from evo.lineage.difference import Difference, difference
from evo.lineage.genealogy import Branch, Lineage, Node, Place, Step
from evo.lineage.refs import Found, resolve
from evo.lineage.sketches import Sketch, outline, sketches
from evo.lineage.statistics import Share, all_shares, shares

__all__ = [
    "Blame",
    "BlamedLine",
    "Branch",
    "Difference",
    "Found",
    "Lineage",
    "Node",
    "Place",
    "Share",
    "Sketch",
    "Step",
    "all_shares",
    "blame",
    "difference",
    "outline",
    "resolve",
    "shares",
    "sketches",
]
