"""Which steps made the best kernel fast? The path from the seed, the largest gain first, with what changed.

python docs/examples/steps_that_mattered.py runs/archive.db best
"""

from __future__ import annotations

import sys

from evo.archive import Archive
from evo.lineage import Lineage, blame, resolve


def main(path: str, ref: str) -> None:
    """Print it for the run or candidate that `ref` names in the archive at `path`."""
    with Archive.open(path, readonly=True) as archive:
        found = resolve(archive, ref)
        lineage = Lineage(archive, found.run)
        n = found.n if found.n is not None else lineage.answer().n
        steps = [step for step in lineage.path(n) if step.gain is not None]
        lines = blame(lineage, n).counts()
        for step in sorted(steps, key=lambda step: -(step.gain or 0.0)):
            changed = step.change.params if step.change else {}
            params = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changed.items())
            node = step.node
            print(f"#{node.n} {step.gain:.3f}x {node.plan.operator}: {lines.get(node.n, 0)} lines; {params}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
