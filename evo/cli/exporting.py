"""What `evo archive export` writes: one file per table, row by row, so that memory stays flat."""

from __future__ import annotations

from pathlib import Path

from evo.archive import Archive
from evo.archive.exported import EXPORTED, lines_of, sources_of
from evo.errors import ArchiveError
from evo.writing import whole

_BUFFER = 1 << 20


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
    with archive.snapshot():
        counts = {table: _write(archive, table, run_ids, out / f"{table}.{kind}", kind) for table in EXPORTED}
        if with_sources:
            counts["sources"] = _write_sources(archive, run_ids, out / "sources")
    return counts


def _write_sources(archive: Archive, run_ids: list[str], folder: Path) -> int:
    """Write every source; returns how many there are."""
    folder.mkdir(exist_ok=True)
    count = 0
    for key, text in sources_of(archive, run_ids):
        if not key.isalnum():  # a key names a file here; the archive may be somebody else's
            raise ArchiveError(f"{key!r} is no key of a source", "see what is wrong with: evo archive check")
        _write_source(folder / f"{key}.cu", text.encode())
        count += 1
    return count


def _write_source(path: Path, text: bytes) -> None:
    """Write one, unless it is there: its name is its content, and to write over a file makes many disks flush it."""
    try:
        if path.read_bytes() == text:
            return
    except FileNotFoundError:
        pass
    path.write_bytes(text)


def _write(archive: Archive, table: str, run_ids: list[str], path: Path, kind: str) -> int:
    """Write the rows of a table; returns how many there were."""
    count = -1 if kind == "csv" else 0
    with whole(path) as unfinished, unfinished.open("w", _BUFFER, encoding="utf-8", newline="\n") as file:
        for lines in lines_of(archive, table, run_ids, kind):
            file.writelines(lines)
            count += len(lines)
    return count
