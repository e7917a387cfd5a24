"""Names and dotted paths become classes, or one line that says why not."""

from __future__ import annotations

import fractions

import pytest

from fitness.formats import FORMATS, get_format
from fitness.ops import OPS, get_op
from fitness.registry import UnknownNameError, find

REGISTRY = {"fraction": "fractions:Fraction", "gone": "no_such_module:X"}


def test_name_and_path() -> None:
    assert find(REGISTRY, "fraction", "number") is fractions.Fraction
    assert find({}, "fractions:Fraction", "number") is fractions.Fraction


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("fracton", "unknown number 'fracton'; did you mean 'fraction'?"),
        ("gone", "cannot be imported"),
        ("fractions:Nothing", "cannot be imported"),
        (":", "cannot be imported"),
    ],
)
def test_unknown(name: str, part: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find(REGISTRY, name, "number")
    assert part in str(caught.value)


def test_every_registered_class_has_its_name() -> None:
    assert {get_format(name).name for name in FORMATS} == FORMATS.keys()
    assert {get_op(name).name for name in OPS} == OPS.keys()
