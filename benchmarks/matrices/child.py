"""The process that has the card: measures what is asked and says as JSON, a line each, what it does and what it found.

`{"at": [matrix, N, subject]}` before each subject, `{"busy": what}` while it waits, `{"left_out": [matrix, why]}`,
`{"row": ...}` once a matrix is measured at one N, `{"broken": [matrix, N, subject, why]}` before it gives up the card.
`benchmarks.matrices.measure` starts it, ends it where it says nothing for long, and starts another one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.matrices.ahead import Ahead, Prepared, jobs_of
from benchmarks.matrices.bench import Bench, BrokenError
from benchmarks.matrices.cusparse import CusparseError, library
from fitness.gpu import load
from fitness.matrices import Mask

MOST_OPERAND_BYTES: Final = 2**30
"""X or Y of more than that are not tried: moving them takes longer than measuring."""
_RUN_S: Final = 5.0

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Asked:
    """What is to be measured.

    Attributes:
        out: rows that are there already.
        folder, generated, only, least: which matrices.
        columns: every N; gpu: the card; minutes: after which no further N of a matrix is begun; dry: time nothing.
    """

    out: str
    folder: str | None
    generated: bool
    only: tuple[str, ...]
    least: int | None
    columns: tuple[int, ...]
    gpu: str
    minutes: float
    dry: bool

    def to_json(self) -> str:
        """For the command line of the child."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Asked:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return Asked(**(data | {"only": tuple(data["only"]), "columns": tuple(data["columns"])}))


class Known:
    """What a file of rows holds: which matrices are done at which N, and which subjects broke the card there."""

    def __init__(self, out: Path) -> None:
        self.done: set[tuple[str, int]] = set()
        self.broken: dict[tuple[str, int], dict[str, str]] = {}
        for row in map(json.loads, out.read_text(encoding="utf-8").splitlines() if out.exists() else ()):
            place = (row["matrix"], row["N"])
            if "broken" in row:
                self.broken.setdefault(place, {})[row["broken"]] = row["why"]
            else:
                self.done.add(place)


def work(asked: Asked, bench: Bench, say: Say) -> None:
    """Measure all that is missing until time is over.

    Raises:
        BrokenError: the card is lost; `say` was told at which subject.
    """
    end = time.monotonic() + 60 * asked.minutes
    known = Known(Path(asked.out))
    folder = Path(asked.folder) if asked.folder is not None else None
    jobs = jobs_of(folder, generated=asked.generated, only=asked.only, least=asked.least)
    missing = [(job, [n for n in asked.columns if (job.name, n) not in known.done]) for job in jobs]
    missing = [(job, columns) for job, columns in missing if columns]
    with Ahead(workers=max(1, min(8, (os.cpu_count() or 2) - 2))) as ahead:
        for left in ahead.compile_all(asked.columns if missing else (), bench.gpu.arch):
            say({"busy": f"{left} seeds to compile"})
        for (job, columns), found in ahead.prepare(missing):
            if time.monotonic() > end:
                return
            if found is None:
                say({"busy": f"{job.name} is made ready"})
            elif isinstance(found, str):
                say({"left_out": [job.name, found]})
            else:
                for n in columns:
                    if time.monotonic() > end:
                        return
                    _measure(job.name, found, n, bench, known.broken.get((job.name, n), {}), say)


def _measure(name: str, found: Prepared, n: int, bench: Bench, broken: Mapping[str, str], say: Say) -> None:
    if not _fits(found.mask, n):
        say({"left_out": [name, f"X or Y of {n} columns takes more than {MOST_OPERAND_BYTES >> 20} MiB"]})
        return
    bench.tell = lambda title: say({"at": [name, n, title]})
    began = time.monotonic()
    try:
        row = bench.row(name, found.mask, found.weights, n, broken)
    except BrokenError as error:
        say({"broken": [name, n, error.title, error.why]})
        raise
    say({"row": row | {"seconds": time.monotonic() - began}})


def _fits(mask: Mask, n: int) -> bool:
    return 4 * n * max(mask.shape) <= MOST_OPERAND_BYTES


def bench_of(asked: Asked) -> Bench:
    """The card and the library.

    Raises:
        CusparseError: there is no library.
    """
    gpu = load(asked.gpu)
    if asked.dry:
        return Bench(gpu, None, None)
    from fitness.devices.cuda.cuda import Cuda

    device, lib = Cuda(gpu), library()
    device.run_s = _RUN_S  # a slow seed is slow, not broken
    return Bench(gpu, device, lib)


def main() -> None:
    """Work as the only argument says."""
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no line of ours

    def say(line: dict[str, Any]) -> None:
        lines.write(json.dumps(line, default=float) + "\n")
        lines.flush()

    asked = Asked.from_json(sys.argv[1])
    say({"busy": "the card is opened"})
    try:
        work(asked, bench_of(asked), say)
    except (BrokenError, CusparseError) as error:
        print(error, file=sys.stderr)
        lines.flush()
        os._exit(3)  # a lost context ends by nothing else


if __name__ == "__main__":
    main()
