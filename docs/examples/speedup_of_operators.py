"""Which operator finds faster kernels, and at what cost? One line per operator of a run.

python docs/examples/speedup_of_operators.py runs/archive.db nm24
"""

from __future__ import annotations

import sys

from evo.archive import Archive
from evo.lineage import resolve, shares


def main(path: str, ref: str) -> None:
    """Print it for the run or candidate that `ref` names in the archive at `path`."""
    with Archive.open(path, readonly=True) as archive:
        run = resolve(archive, ref).run
        for share in shares(archive, run.id):
            if share.median_gain is not None:
                cost = f"{share.judged_s / share.bests:.1f} s for each" if share.bests else "no"
                gain = f"median gain {share.median_gain:.3f} ({run.clock})"
                print(f"{share.name}: {gain}, {share.faster} faster, {cost} new best")


if __name__ == "__main__":
    main(*sys.argv[1:3])
