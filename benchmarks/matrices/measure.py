"""SpMV and SpMM over real and generated matrices: every seed against every cuSPARSE algorithm, on one card.

    python -m benchmarks.matrices.measure OUT.jsonl FOLDER        all real matrices of a folder, N = 1, 8, 32, 128, 256
    python -m benchmarks.matrices.measure OUT.jsonl --generated   the large generated ones
    python -m benchmarks.matrices.measure OUT.jsonl FOLDER --dry-run   compile and resolve everything; needs no card

Two cards side by side take half of the matrices each, with files of their own; `summary` takes both:

    CUDA_VISIBLE_DEVICES=1 python -m benchmarks.matrices.measure OUT2.jsonl FOLDER --part 2/2

Settings of seeds instead of all seeds, every combination of the values named, of all values where only a param is; for
several seeds it is given several times. `summary SWEEP.jsonl` tells the mean of each setting:

    python -m benchmarks.matrices.measure SWEEP.jsonl FOLDER --sweep spmm/csr_binned THREADS WIDE=500000,2000000

One line of JSON for each matrix and N, or setting of it, written as it is found; lines that are there already are kept,
so a run that was cut off goes on. A seed that is four times slower than the fastest at one N is left out at the next
ones of that matrix; no algorithm of cuSPARSE is. The card is used by a process of its own (`child`): one that hangs or
breaks is replaced, and what it was at is left out from then on. `benchmarks.matrices.summary` sums up.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final

from benchmarks.matrices.child import Asked
from benchmarks.matrices.settings import SweepError, variants_of

COLUMNS: Final = (8, 128, 1, 32, 256)
SILENCE_S: Final = 60.0
"""A child that says nothing for so long hangs."""
_LAST_S: Final = 90.0
"""How long after its time a child may still be at its last matrix."""
_MOST_CHILDREN: Final = 20
_COMMAND: Final = (sys.executable, "-m", "benchmarks.matrices.child")


class Child:
    """A child and the lines it says."""

    def __init__(self, asked: Asked, command: Sequence[str]) -> None:
        self._process = subprocess.Popen([*command, asked.to_json()], stdout=subprocess.PIPE, text=True)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put(None)

    def line(self, timeout_s: float) -> dict[str, Any] | None:
        """What it says next; None at its end.

        Raises:
            TimeoutError: nothing within that time.
        """
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None
        return None if line is None else json.loads(line)

    def end(self, *, at_once: bool) -> int:
        """Its exit code; it is killed, at once or where it does not end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=0.0 if at_once else 5.0)
        self._process.kill()
        return self._process.wait()


def measure(asked: Asked, *, command: Sequence[str] = _COMMAND, silence_s: float = SILENCE_S) -> bool:
    """Children, one after the other, until all is measured or time is over; False where one could not even begin."""
    end = time.monotonic() + 60 * asked.minutes
    for _ in range(_MOST_CHILDREN):
        left_s = end - time.monotonic()
        if left_s <= 0:
            break
        child = Child(dataclasses.replace(asked, minutes=left_s / 60), command)
        at, why = _followed(child, Path(asked.out), silence_s, end + _LAST_S)
        code = child.end(at_once=bool(why))
        why = why or (f"the process that has the card ended with {code}" if code else "")
        if not why or time.monotonic() > end:
            break
        if at is None:
            print(f"nothing is measured: {why}", file=sys.stderr)
            return False
        matrix, n, title = at
        _append(Path(asked.out), {"matrix": matrix, "N": n, "broken": title, "why": why})
        print(f"{matrix} N={n}: {title} is left out from now on: {why}", file=sys.stderr, flush=True)
    if time.monotonic() > end:
        print("time is over; run it again to go on", file=sys.stderr)
    return True


def _followed(child: Child, out: Path, silence_s: float, end: float) -> tuple[tuple[str, int, str] | None, str]:
    """Keep what a child finds until its end: which subject it was at then, and why that was not the end of its work."""
    at: tuple[str, int, str] | None = None
    while True:
        limit_s = min(silence_s, end - time.monotonic())
        try:
            said = child.line(max(limit_s, 0.0))
        except TimeoutError:
            return at, f"no end within {limit_s:.0f} s"
        if said is None:
            return at, ""
        if "row" in said:
            _append(out, said["row"])
            print(told(said["row"]), flush=True)
        elif "at" in said:
            at = tuple(said["at"])
        elif "left_out" in said:
            print(f"left out: {': '.join(said['left_out'])}", file=sys.stderr, flush=True)
        elif "broken" in said:
            *place, why = said["broken"]
            return tuple(place), why


def _append(out: Path, row: dict[str, Any]) -> None:
    with out.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")


def told(row: dict[str, Any]) -> str:
    """A row in one line."""
    where = f"{row['matrix']} N={row['N']}"
    if "sweep" in row:
        words = " ".join([row["sweep"], *(f"{name}={value}" for name, value in row["params"].items())])
        return f"{where}: {words}: " + (f"{row['us']:.3g} us" if "us" in row else row.get("left_out") or "resolved")
    if "speedup" not in row:
        counts = f"{len(row['seeds'])} seeds, {len(row['cusparse'])} routines, {len(row['left_out'])} left out"
        return f"{where}: {counts} ({row['seconds']:.1f} s)"
    own = f"{row['best_seed']} {row['best_us']:.3g} us"
    theirs = f"cuSPARSE {row['best_cusparse']} {row['best_cusparse_us']:.3g} us"
    return f"{where}: {own}, {theirs}, {row['speedup']['value']:.2f}x ({row['seconds']:.1f} s)"


def _part(text: str) -> tuple[int, int]:
    """(2, 3) of "2/3"."""
    first, _, parts = text.partition("/")
    if not (first.isdigit() and parts.isdigit() and 1 <= int(first) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part; write 1/2 or 2/2")
    return int(first), int(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in OUT."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--generated", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="matrices with it in their name")
    parser.add_argument("--least", type=int, help="nonzeros; smaller ones are left out (1000 without an INDEX.tsv)")
    parser.add_argument("--columns", type=int, nargs="+", default=COLUMNS)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--minutes", type=float, default=9.0, help="nothing further is begun after so long")
    parser.add_argument("--dry-run", action="store_true", help="compile and resolve everything, time nothing")
    parser.add_argument("--part", type=_part, default=(1, 1), metavar="I/N", help="every N-th matrix from the I-th on")
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        nargs="+",
        metavar="WORD",
        help="SEED PARAM=V1,V2 PARAM ...",
    )
    asked = parser.parse_args(arguments)
    try:
        variants_of(asked.sweep)
    except SweepError as error:
        parser.error(f"--sweep {error}")
    if asked.folder is None and not asked.generated:
        parser.error("give a FOLDER, or --generated")
    if asked.folder is not None and not asked.folder.is_dir():
        parser.error(f"{asked.folder} is no folder")
    folder = None if asked.folder is None else str(asked.folder)
    done = measure(Asked(str(asked.out), folder, asked.generated, tuple(asked.only), asked.least, tuple(asked.columns),
                         asked.gpu, asked.minutes, asked.dry_run, asked.part,
                         tuple(map(tuple, asked.sweep))))  # fmt: skip
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
