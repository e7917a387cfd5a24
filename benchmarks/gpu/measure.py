"""What the GPU backend reaches on this machine's card, phase by phase; figures and raw samples as JSON.

Each phase writes OUT/PHASE.json as it goes (machine, driver, date, command, raw samples), keeps to its own time and
prints one line. Needs a card and PyCUDA; PyTorch for vendor routines and the extension build.
"""

from __future__ import annotations

import shlex
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks.gpu import judging, numbers
from benchmarks.gpu.recording import Record

PHASES: dict[str, tuple[Callable[[Record], str], float]] = {
    "vendors": (judging.vendors, 110.0),
    "seeds": (judging.seeds, 85.0),
    "noise": (numbers.noise, 75.0),
    "redteam": (judging.redteam_on_card, 45.0),
    "faults": (judging.faults, 75.0),
    "throughput": (judging.throughput, 150.0),
    "tolerance": (numbers.tolerance, 45.0),
    "tools": (numbers.tools, 60.0),
    "confirm": (judging.confirm, 110.0),
}
"""Name -> what it does, and after how many seconds it stops by itself."""


@click.command(help=__doc__)
@click.argument("out", type=click.Path(path_type=Path, file_okay=False), metavar="OUT")
@click.argument("phases", nargs=-1, required=True, type=click.Choice(list(PHASES)), metavar="PHASE...")
@click.option("--seconds", type=click.FloatRange(min=1.0), help="Time of each phase instead of its own.")
def main(out: Path, phases: tuple[str, ...], seconds: float | None) -> None:
    command = shlex.join(["python", "-m", "benchmarks.gpu.measure", *sys.argv[1:]])
    failed = False
    for name in phases:
        work, limit_s = PHASES[name]
        began = time.perf_counter()
        record = Record(out / f"{name}.json", command, seconds or limit_s)
        try:
            summary = work(record)
            record.finish(summary)
        except Exception:  # noqa: BLE001 -- the other phases are still worth having; the file says what went wrong
            failed = True
            record.put(error=traceback.format_exc())
            summary = traceback.format_exc().strip().splitlines()[-1]
            traceback.print_exc()
        click.echo(f"{name} ({time.perf_counter() - began:.0f} s): {summary}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
