"""What `evo archive export` writes: one file per table, row by row, so that memory stays flat."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from evo.archive import Archive
from evo.archive.exported import EXPORTED, columns_of, json_lines, rows_of, sources_of
from evo.errors import ArchiveError
from evo.writing import whole

_BATCH = 1000


def export_tables(archive: Archive, run_ids: list[str], out: Path, kind: str, *, with_sources: bool) -> dict[str, int]:
    """Write `out`/<table>.<kind> for every table, and `out`/sources/<source_id>.cu.

    Args:
        archive: open.
        run_ids: the runs to write.
        out: folder, made where missing.
        kind: "jsonl", where JSON columns are objects, or "csv", where they are text.
        with_sources: write the kernel files.

    Returns:
        Rows written per table.

    Raises:
        OSError: the folder cannot be written.
        ArchiveError: the archive cannot be read, or holds a source under what is no key.
    """
    out.mkdir(parents=True, exist_ok=True)
    write = _write_jsonl if kind == "jsonl" else _write_csv
    counts = {table: write(archive, table, run_ids, out / f"{table}.{kind}") for table in EXPORTED}
    if with_sources:
        folder = out / "sources"
        folder.mkdir(exist_ok=True)
        counts["sources"] = 0
        for key, text in sources_of(archive, run_ids):
            if not key.isalnum():  # a key names a file here; the archive may be somebody else's
                raise ArchiveError(f"{key!r} is no key of a source", "see what is wrong with: evo archive check")
            with open(folder / f"{key}.cu", "w", encoding="utf-8") as file:
                file.write(text)
            counts["sources"] += 1
    return counts


def _write_jsonl(archive: Archive, table: str, run_ids: list[str], path: Path) -> int:
    with whole(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        return _write(file.writelines, json_lines(archive, table, run_ids))


def _write_csv(archive: Archive, table: str, run_ids: list[str], path: Path) -> int:
    with whole(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns_of(archive, table))
        return _write(writer.writerows, rows_of(archive, table, run_ids))


def _write(write: Callable[[Iterable[Any]], object], rows: Iterator[Any]) -> int:
    """Write some rows at a time; returns how many there were."""
    count = 0
    while some := list(itertools.islice(rows, _BATCH)):
        write(some)
        count += len(some)
    return count
