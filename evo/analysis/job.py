"""The matrices of files, analysed one after the other: at most one of them is in memory."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evo.errors import EvoError
from fitness.analyze import Analysis, analyze
from fitness.gpu import Gpu
from fitness.matrices import Entry, MatrixError, Skipped, Source, matrix_files, open_matrices


@dataclass(frozen=True)
class Asked:
    """What to measure.

    Attributes:
        gpu: the card floors are for; dtype: element type there, None for the file's.
        columns: every N; layers: glob patterns of matrices within files, all where empty.
    """

    gpu: Gpu
    dtype: str | None
    columns: tuple[int, ...]
    layers: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Result:
    """One matrix: where it came from, and what it is."""

    path: Path
    kind: str
    name: str
    analysis: Analysis

    @property
    def title(self) -> str:
        """The file, and the matrix where the file has names for them."""
        return printable(f"{self.path} {self.name}".rstrip())


@dataclass(frozen=True)
class Refused:
    """A file, or a matrix of it, that could not be read; the reason names the file."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Batch:
    """All that will be analysed.

    Attributes:
        sources: files that could be opened, with the entries asked for; refused: the others.
        skipped: tensors that are no matrices.
    """

    sources: tuple[Source, ...]
    refused: tuple[Refused, ...]
    skipped: tuple[Skipped, ...]

    @property
    def elements(self) -> int:
        """Elements of all matrices of known shape: how much there is to read."""
        return sum(size_of(entry) for source in self.sources for entry in source.entries)


def printable(text: str) -> str:
    """A name out of a file, on one line and without signs that steer a terminal."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def size_of(entry: Entry) -> int:
    """Elements of a matrix, 1 where the shape is not known before it is read."""
    return entry.shape[0] * entry.shape[1] if entry.shape else 1


def collect(paths: Sequence[Path], layers: Sequence[str]) -> Batch:
    """Open every file, and every file of a folder that holds no single model.

    Raises:
        MatrixError: the only file given cannot be read.
        EvoError: nothing is there, or no matrix has such a name.
    """
    sources: list[Source] = []
    refused: list[Refused] = []
    skipped: list[Skipped] = []
    for path in _files(paths):
        try:
            source = open_matrices(path)
        except MatrixError as error:
            if len(paths) == 1 and not paths[0].is_dir():
                raise
            refused.append(Refused(path, str(error)))
            continue
        skipped += source.skipped
        entries = tuple(entry for entry in source.entries if _wanted(entry.name, layers))
        if entries:
            sources.append(Source(source.path, source.kind, entries, source.skipped))
    if layers and not sources:
        raise EvoError(f"no matrix is called {' or '.join(layers)}", 'try --layers "*"')
    return Batch(tuple(sources), tuple(refused), tuple(skipped))


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = matrix_files(path)
        if not inside:
            raise EvoError(f"{path}: no matrix in this folder", "evo analyze --help lists the kinds of files")
        found += inside
    return found


def _wanted(name: str, layers: Sequence[str]) -> bool:
    return not layers or any(fnmatch.fnmatchcase(name, pattern) for pattern in layers)


def analyse_all(batch: Batch, asked: Asked, done: Callable[[str, int], None]) -> Iterator[Result | Refused]:
    """Every matrix in order.

    Args:
        batch: what there is.
        asked: what to measure.
        done: called with the title and the elements of each matrix once it is measured or refused.
    """
    for source in batch.sources:
        for entry in source.entries:
            try:
                analysis = analyze(entry.load(), asked.gpu, dtype=asked.dtype, columns=asked.columns)
                yield Result(source.path, source.kind, entry.name, analysis)
            except MatrixError as error:
                yield Refused(source.path, str(error))
            done(printable(f"{source.path.name} {entry.name}".rstrip()), size_of(entry))
