"""What goes wrong, and what did the verdicts suggest? The commonest findings of a run.

python docs/examples/why_candidates_failed.py runs/archive.db nm24
"""

from __future__ import annotations

import sys
from collections import Counter

from evo.archive import Archive
from evo.lineage import Lineage, resolve


def main(path: str, ref: str) -> None:
    """Print it for the run or candidate that `ref` names in the archive at `path`."""
    with Archive.open(path, readonly=True) as archive:
        lineage = Lineage(archive, resolve(archive, ref).run)
        reasons: Counter[tuple[str, str, str]] = Counter()
        for node in lineage.nodes():
            if node.time_us is None and node.outcome is not None:
                first = node.outcome.findings[0] if node.outcome.findings else None
                reasons[(node.outcome.kind, first.kind if first else "", first.suggestion if first else "")] += 1
        print(f"{lineage.run.id}: {sum(reasons.values())} candidates failed")
        for (kind, finding, suggestion), count in reasons.most_common(10):
            print(f"{count:4}  {kind} {finding}  {suggestion}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
