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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.matrices.ahead import Ahead, Prepared, jobs_of
from benchmarks.matrices.bench import Bench, BrokenError, hopeless
from benchmarks.matrices.cusparse import CusparseError, library
from benchmarks.matrices.settings import Setting, Variants, variants_of
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
        part: (i, n), every n-th matrix from the i-th on; sweep: seeds and settings to try instead (see `settings`).
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
    part: tuple[int, int] = (1, 1)
    sweep: tuple[tuple[str, ...], ...] = ()

    def to_json(self) -> str:
        """For the command line of the child."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Asked:
        """The inverse of `to_json`."""
        data = json.loads(text)
        tuples = {name: tuple(data[name]) for name in ("only", "columns", "part")}
        return Asked(**(data | tuples | {"sweep": tuple(map(tuple, data["sweep"]))}))


class Known:
    """What a file of rows holds: which matrices are done at which N, which settings, what broke the card there."""

    def left(self, place: tuple[str, int], variants: Variants) -> dict[str, list[Setting]]:
        """The settings that are not measured yet and did not break the card."""
        done, broken = self.swept.get(place, set()), self.broken.get(place, {})
        found = {
            seed: [each for each in settings if (seed, each.params) not in done and each.title(seed) not in broken]
            for seed, settings in variants.items()
        }
        return {seed: settings for seed, settings in found.items() if settings}

    def __init__(self, out: Path) -> None:
        self.done: set[tuple[str, int]] = set()
        self.broken: dict[tuple[str, int], dict[str, str]] = {}
        self.swept: dict[tuple[str, int], set[tuple[str, tuple[tuple[str, int], ...]]]] = {}
        for row in map(json.loads, out.read_text(encoding="utf-8").splitlines() if out.exists() else ()):
            place = (row["matrix"], row["N"])
            if "sweep" in row:
                self.swept.setdefault(place, set()).add((row["sweep"], tuple(row["params"].items())))
            elif "broken" in row:
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
    jobs = jobs_of(folder, generated=asked.generated, only=asked.only, least=asked.least, part=asked.part)
    variants = variants_of(asked.sweep) if asked.sweep else None
    missing = [(job, [n for n in asked.columns if _is_missing((job.name, n), known, variants)]) for job in jobs]
    missing = [(job, columns) for job, columns in missing if columns]
    with Ahead(workers=max(1, min(8, (os.cpu_count() or 2) - 2))) as ahead:
        for waiting in ahead.compile_all(asked.columns if missing else (), bench.gpu.arch, variants):
            say({"busy": f"{waiting} seeds to compile"})
        for (job, columns), found in ahead.prepare(missing, variants):
            if time.monotonic() > end:
                return
            if found is None:
                say({"busy": f"{job.name} is made ready"})
            elif isinstance(found, str):
                say({"left_out": [job.name, found]})
            else:
                slow: dict[str, str] = {}
                for n in columns:
                    if time.monotonic() > end:
                        return
                    place = (job.name, n)
                    left = None if variants is None else known.left(place, variants)
                    for row in _measure(place, found, bench, slow | known.broken.get(place, {}), left, say):
                        say({"row": row})
                        slow |= hopeless(row) if variants is None else {}


def _is_missing(place: tuple[str, int], known: Known, variants: Variants | None) -> bool:
    return place not in known.done if variants is None else bool(known.left(place, variants))


def _measure(
    place: tuple[str, int],
    found: Prepared,
    bench: Bench,
    left_out: Mapping[str, str],
    variants: Variants | None,
    say: Say,
) -> Iterator[dict[str, Any]]:
    """The row of a matrix at one N, or a row for each setting."""
    name, n = place
    if not _fits(found.mask, n):
        say({"left_out": [name, f"X or Y of {n} columns takes more than {MOST_OPERAND_BYTES >> 20} MiB"]})
        return
    bench.tell = lambda title: say({"at": [name, n, title]})
    began = time.monotonic()
    try:
        if variants is not None:
            yield from bench.settings(name, found.mask, found.weights, n, variants)
            return
        row = bench.row(name, found.mask, found.weights, n, left_out)
    except BrokenError as error:
        say({"broken": [name, n, error.title, error.why]})
        raise
    yield row | {"seconds": time.monotonic() - began}


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
