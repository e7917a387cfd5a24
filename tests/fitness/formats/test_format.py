"""Options are completed with the first choice and checked."""

from __future__ import annotations

import pytest

from fitness.formats import FormatError, get_format
from fitness.formats.format import complete, numbered


def test_defaults_and_choices() -> None:
    assert complete(get_format("nm24"), {}) == {"values": "row"}
    assert complete(get_format("nm24"), {"values": "tile"}) == {"values": "tile"}
    assert complete(get_format("coo"), {}) == {"order": "row"}
    assert complete(get_format("csc"), {}) == {}


@pytest.mark.parametrize(
    ("options", "part"), [({"order": "row"}, "no option 'order'"), ({"values": "rows"}, r"choices: \['row'")]
)
def test_refuses(options: dict[str, str], part: str) -> None:
    with pytest.raises(FormatError, match=part):
        complete(get_format("nm24"), options)


def test_a_number_picks_by_index_or_the_equal_choice() -> None:
    assert numbered(("row", "tile"), 1) == "tile"
    assert numbered(("row", "tile"), 2) is None
    assert numbered(("32", "16"), 16) == "16"
    assert numbered(("32", "16"), 1) is None
