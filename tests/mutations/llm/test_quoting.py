from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutations.llm.quoting import numbered, phrase, quoted, without_paths


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('error in /home/someone/project/kernel.cu: "x"', 'error in kernel.cu: "x"'),
        ("(/tmp/a-b/c.d/evo.cuh)", "(evo.cuh)"),
        ("~/secret/place.txt", "place.txt"),
        ("a / b and M/16 and x//y", "a / b and M/16 and x//y"),
        ("http://example.org/a/b", "http://example.org/a/b"),
        ("cuda/std/array", "cuda/std/array"),
    ],
)
def test_absolute_paths_are_reduced_to_their_last_part(text: str, clean: str) -> None:
    assert without_paths(text) == clean


@given(st.text())
def test_quoted_text_cannot_end_its_fence_or_steer_a_terminal(text: str) -> None:
    found = quoted(text)
    assert "```" not in found
    assert "~~~" not in found
    assert not {"\x1b", "\x00", "\u202e", "\r"} & set(found)
    found.encode("utf-8")
    line = phrase(text, 50)
    assert len(line) <= 50
    assert "\n" not in line


def test_lines_are_shown_with_their_neighbours() -> None:
    source = "one\ntwo\nthree\nfour"
    assert numbered(source, 2) == "   1 | one\n   2 | two\n   3 | three"
    assert numbered(source, 4) == "   3 | three\n   4 | four"
    assert numbered(source, 9) == numbered(source, None) == numbered(source, 0) == ""
