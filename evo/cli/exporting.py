"""What `evo archive export` writes: one file per table, row by row, so that memory stays flat."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evo.archive import Archive
from evo.archive.keeping import rows_of, sources_of
from evo.errors import ArchiveError

TABLES = ("runs", "candidates", "timings", "events")
_JSON = ("experiment", "machine", "parents", "params", "findings", "shape", "samples_us", "data")


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
    counts = {table: write(out / f"{table}.{kind}", rows_of(archive, table, run_ids)) for table in TABLES}
    if with_sources:
        folder = out / "sources"
        folder.mkdir(exist_ok=True)
        counts["sources"] = 0
        for key, text in sources_of(archive, run_ids):
            if not key.isalnum():  # a key names a file here; the archive may be somebody else's
                raise ArchiveError(f"{key!r} is no key of a source", "see what is wrong with: evo archive check")
            (folder / f"{key}.cu").write_text(text, encoding="utf-8")
            counts["sources"] += 1
    return counts


def _write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in map(_decoded, rows):
            count += 1
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return count


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value) if name in _JSON and value is not None else value for name, value in row.items()}


def _write_csv(path: Path, rows: Iterator[Mapping[str, Any]]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            count += 1
            if writer is None:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
    return count
