"""Header types: lines of keys, hashing, expressions by key."""

from __future__ import annotations

import pickle

from fitness.header import FormatChoice, Header, KernelError, Launch
from fitness.header_reader import read_header

ONE_LAUNCH = 'format = "dense"\n[[launch]]\nkernel = "f"\ngrid = [1]\nblock = ["32 * 2"]\nargs = []\n'


def header() -> Header:
    return read_header(ONE_LAUNCH, path="k.cu", first_line=2)


def test_line_of_a_key_or_the_nearest_enclosing_one() -> None:
    read = header()
    assert read.line("format") == 2
    assert read.line("launch[0].block") == 6
    assert read.line("launch[0].when") == 3
    assert read.line("params.BM") is None


def test_launch_lists_its_expressions() -> None:
    launch: Launch = header().launches[0]
    assert {key: [e.text for e in found] for key, found in launch.expressions().items()} == {
        "grid": ["1", "1", "1"],
        "block": ["32 * 2", "1", "1"],
        "cluster": ["1", "1", "1"],
        "shared": ["0"],
        "when": ["1"],
    }


def test_format_choices_hash_by_content() -> None:
    assert hash(FormatChoice("nm24", {"values": "row"})) == hash(FormatChoice("nm24", {"values": "row"}))
    assert FormatChoice("nm24", {"values": "row"}) != FormatChoice("nm24", {"values": "tile"})


def test_error_text_and_pickling() -> None:
    error = KernelError("a.cu", 7, "launch[0].grid", "bad", "do better")
    assert str(error) == "a.cu:7: launch[0].grid: bad; do better"
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.line) == (str(error), 7)
