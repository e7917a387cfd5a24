"""docs/formats.md says what the code does; `EVO_DOCS=write pytest tests/test_formats_doc.py` writes its tables anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fitness.dtypes import DTYPES
from fitness.formats import FORMATS
from fitness.patterns import PATTERNS
from tests import support

DOCUMENT = Path(__file__).parents[1] / "docs" / "formats.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("support")


def tables(folder: Path) -> dict[str, str]:
    return {
        "formats": support.format_table(),
        "support": support.support_tables(folder),
        "seeds": support.seed_table(),
    }


def with_tables(text: str, made: dict[str, str]) -> str:
    """The document with every table between its markers replaced."""
    for name, table in made.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        assert text.count(begin) == text.count(end) == 1, name
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n{table}\n\n{end}{rest.partition(end)[2]}"
    return text


def test_tables_are_those_of_the_code(folder: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    expected = with_tables(text, tables(folder))
    if os.environ.get("EVO_DOCS") == "write":
        DOCUMENT.write_text(expected, encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == expected, (
        "docs/formats.md is stale; see the docstring of this module"
    )


def test_a_stale_table_is_noticed(folder: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    made = tables(folder)
    assert with_tables(text.replace("| banded | ", "| banded | never ", 1), made) == with_tables(text, made)
    assert text.replace("| banded | ", "| banded | never ", 1) != with_tables(text, made)


def test_every_pattern_has_a_row() -> None:
    assert {str(pattern["kind"]) for pattern in support.PATTERNS.values()} == set(PATTERNS)


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"nm", "nm24"}))
def test_formats_without_a_structure_take_every_pattern_in_every_type(name: str, folder: Path) -> None:
    for pattern in set(support.PATTERNS) - {"dense"}:
        for dtype in DTYPES:
            found = support.support("spmm", pattern, name, dtype, folder)
            assert found.state == "works", (pattern, dtype, found)


def test_what_the_sparse_tensor_cores_cannot_take_is_refused_with_the_reason(folder: Path) -> None:
    assert "1:2, not 2:4" in support.support("spmm", "nm 2:4", "nm24", "float32", folder).reason
    assert "2:4 allows two of every four" in support.support("spmm", "random", "nm24", "float16", folder).reason
    assert support.support("gemm", "dense", "csr", "float16", folder).state == "not applicable"
