"""docs/archive.md describes the tables and views there are."""

from __future__ import annotations

import re
from pathlib import Path

from evo.archive import Archive

TEXT = (Path(__file__).parents[3] / "docs" / "archive.md").read_text(encoding="utf-8")


def test_every_table_and_column() -> None:
    documented = {
        name: re.findall(r"`(\w+)`", columns)
        for name, columns in re.findall(r"^\| `(\w+)` \|[^|]*\| (`.*) \|$", TEXT, re.MULTILINE)
    }
    with Archive.memory() as archive:
        database = archive.database
        tables = {name for name in database.table_names() if "_fts" not in name and not name.startswith("_")}
        real = {name: [row["name"] for row in database.query(f"pragma table_info({name})")] for name in tables}
    assert {name: sorted(columns) for name, columns in documented.items()} == {
        name: sorted(columns) for name, columns in real.items()
    }


def test_every_view() -> None:
    with Archive.memory() as archive:
        views = archive.database.view_names()
    assert re.findall(r"^\| `(\w+)` \| [^|]*\|$", TEXT, re.MULTILINE) == sorted(views, key=TEXT.index)
