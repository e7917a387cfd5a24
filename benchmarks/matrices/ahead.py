"""What is done ahead of timing, in processes of their own: matrices read or made, W packed, seeds compiled."""

from __future__ import annotations

import csv
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.matrices.bench import choices_of, seeds_of, task_of
from benchmarks.matrices.generated import GENERATED
from benchmarks.matrices.operands import SparseWeights
from benchmarks.matrices.settings import Setting, Variants
from fitness.compile import compile_source
from fitness.kernel import Kernel
from fitness.matrices import Mask, MatrixError, matrix_files, open_matrices

LEAST: Final = 1000
"""Nonzeros from which matrices of a folder without an INDEX.tsv count."""
_LOOK_S: Final = 5.0

_PREPARE_S: Final = 400.0


@dataclass(frozen=True)
class Job:
    """A matrix to be measured: a file (of `folder`), or the name of a generated one where `folder` is None."""

    name: str
    folder: Path | None = None
    least: int = 0


@dataclass(frozen=True, eq=False)
class Prepared:
    """Its pattern, and W packed in all formats that are wanted."""

    mask: Mask
    weights: SparseWeights


def jobs_of(
    folder: Path | None, *, generated: bool, only: Sequence[str], least: int | None, part: tuple[int, int] = (1, 1)
) -> list[Job]:
    """What is to be measured, so ordered that wherever time ends, what was done is a fair sample.

    Of a folder with an INDEX.tsv: those with role "bench". Large ones first, as launches hide the cost of small ones;
    of every subfolder the same share. `part` (i, n): every n-th of them from the i-th on.
    """
    jobs = [Job(name) for name in GENERATED] if generated else []
    if folder is not None:
        names = _bench_files(folder)
        smallest = least if least is not None else 0 if (folder / "INDEX.tsv").exists() else LEAST
        jobs += [Job(name, folder, smallest) for name in _fairly(names)]
    return [job for job in jobs if not only or any(word in job.name for word in only)][part[0] - 1 :: part[1]]


def _bench_files(folder: Path) -> dict[str, int]:
    """Names within the folder -> bytes, which tell about how many nonzeros they have."""
    index = folder / "INDEX.tsv"
    if index.exists():
        with index.open(encoding="utf-8", newline="") as stream:
            bench = {row["path"] for row in csv.DictReader(stream, delimiter="\t") if row.get("role") == "bench"}
        files = [folder / name for name in bench if (folder / name).exists()]
    else:
        files = matrix_files(folder)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _fairly(sizes: dict[str, int]) -> list[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        groups[str(Path(name).parent)].append(name)
    places = {name: (i + 0.5) / len(names) for names in groups.values() for i, name in enumerate(names)}
    return sorted(places, key=lambda name: (places[name], -sizes[name], name))


def prepared(job: Job, columns: Sequence[int], variants: Variants | None = None) -> Prepared | str:
    """The matrix, or why it is left out. Runs in a process of its own."""
    if job.folder is None:
        make, arguments = GENERATED[job.name]
        mask = make(*arguments)
    else:
        try:
            mask = open_matrices(job.folder / job.name).entries[0].load().mask
        except MatrixError as error:
            return str(error)
    if mask.nnz < max(1, job.least):
        return f"{mask.nnz} nonzeros"
    weights = SparseWeights(mask)
    for n in columns:
        weights.pack_all(choices_of(n, task_of(mask, n), variants))
    mask.column_counts  # noqa: B018 -- kept with the mask, so that nobody counts them while a card waits
    return Prepared(mask, weights)


def compiled(source: str, defines: tuple[str, ...], flags: tuple[str, ...], arch: str) -> None:
    """Into the cache that all processes share; what does not compile is said when its turn comes."""
    compile_source(source, defines=defines, flags=flags, arch=arch)


class Ahead:
    """Prepares some matrices beyond the one that is timed. Use as a context manager.

    Args:
        workers: processes; count: of matrices that may wait to be timed, which bounds memory.
    """

    def __init__(self, workers: int, count: int = 3) -> None:
        self._count = count
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"))  # a forked one would share the card's context

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def compile_all(self, columns: Sequence[int], arch: str, variants: Variants | None = None) -> Iterator[int]:
        """Every seed for these N, or those settings of seeds, in parallel; gives how many are left until none is."""
        asked = set()
        for n in columns:
            task = task_of(Mask.from_csr((1, 1), np.array([0, 1]), np.array([0])), n)
            for title, seed in seeds_of(task.op):
                chosen = [Setting(())] if variants is None else variants.get(title, ())
                for kernel in (setting.of(seed) for setting in chosen):
                    if isinstance(kernel, Kernel):
                        flags = tuple(kernel.header.options)
                        asked.add((kernel.source, (*task.defines, *kernel.defines), flags, arch))
        waiting = {self._pool.submit(compiled, *one) for one in sorted(asked)}
        while waiting:
            waiting = set(wait(waiting, timeout=_LOOK_S, return_when=FIRST_COMPLETED).not_done)
            yield len(waiting)

    def prepare(
        self, jobs: Sequence[tuple[Job, Sequence[int]]], variants: Variants | None = None
    ) -> Iterator[tuple[tuple[Job, Sequence[int]], Prepared | str | None]]:
        """Every job (with its N) in order: ready, or why it is left out; None, again and again, until it is."""
        futures: deque[Future[Prepared | str]] = deque()
        begun = 0
        for place, job in enumerate(jobs):
            while begun < min(len(jobs), place + self._count):
                futures.append(self._pool.submit(prepared, *jobs[begun], variants))
                begun += 1
            future = futures.popleft()
            since = time.monotonic()
            while not _is_done(future) and time.monotonic() - since < _PREPARE_S:
                yield job, None
            ready = future.done() and future.exception() is None
            yield job, future.result() if ready else f"not made ready: {_why(future)}"


def _is_done(future: Future[Any]) -> bool:
    """True if it is, or becomes so within a few seconds."""
    wait([future], timeout=_LOOK_S)
    return future.done()


def _why(future: Future[Any]) -> str:
    error = future.exception() if future.done() else None
    return f"{type(error).__name__}: {error}" if error else f"not within {_PREPARE_S:g} s"
