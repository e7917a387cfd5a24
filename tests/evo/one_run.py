"""A run on the fake evaluator in a process of its own: `python -m tests.evo.one_run ARCHIVE SEEDS [OPTION...]`.

Options: `--resume`; `--pause S`: seconds before each verdict; `--hold FILE`: wait for this file before the first one;
`--file-bytes N`: no file may grow beyond N bytes; `--busy S`: how long to wait for another writer. Prints every call of
the evaluator, then the run's id and status; an error meant for the user is one line on stderr and exit code 1.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import mutations
import seeds
from evo.archive import Archive, connection
from evo.errors import EvoError
from evo.loop import run_experiment
from tests.evo import fakes

GENERATIONS = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("seeds", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--file-bytes", type=int)
    parser.add_argument("--busy", type=float, default=connection.BUSY_S)
    parser.add_argument("--hold", type=Path)
    options = parser.parse_args()
    if options.file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_bytes, resource.RLIM_INFINITY))
    connection.BUSY_S = options.busy
    seeds.seed_paths = lambda pattern: tuple(sorted(options.seeds.glob(pattern.split("/")[-1] + ".cu")))
    mutations.OPERATORS = fakes.OPERATORS

    def called(what: str, n: int) -> None:
        sys.stdout.write(f"{what} {n}\n")
        sys.stdout.flush()
        while what == "judge" and options.hold is not None and not options.hold.exists():
            time.sleep(0.01)
        time.sleep(options.pause)

    try:
        with Archive.open(options.archive) as archive:
            experiment = fakes.experiment(search__generations=GENERATIONS)
            summary = run_experiment(experiment, archive, pool=fakes.FakePool(on_call=called), resume=options.resume)
    except EvoError as error:
        sys.stderr.write(f"evo: {error}\n")
        return 1
    sys.stdout.write(f"{summary.run_id} {summary.status}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
