from __future__ import annotations

import ast
from pathlib import Path

import evo
from evo.archive import connection, schema


def test_the_version_is_the_number_of_migrations() -> None:
    database = connection.in_memory()
    assert len(schema.migrations.applied(database)) == schema.VERSION
    assert schema.migrations.pending(database) == []


def test_migrating_twice_is_harmless() -> None:
    database = connection.in_memory()
    before = database.schema
    schema.migrations.apply(database)
    assert database.schema == before


def test_only_the_archive_imports_sqlite_utils() -> None:
    root = Path(evo.__file__).parent.parent
    for package in ("evo", "mutations", "fitness", "seeds"):
        for path in (root / package).rglob("*.py"):
            if "archive" in path.parts or "sqlite_utils" not in path.read_text():
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not any(name.split(".")[0] == "sqlite_utils" for name in names), path
