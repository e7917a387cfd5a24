"""The registry of operators."""

from __future__ import annotations

import pytest

import mutations
from fitness.registry import UnknownNameError
from mutations.tune import Tune


@pytest.mark.parametrize("name", sorted(mutations.OPERATORS))
def test_every_registered_operator_loads_under_its_own_name(name: str) -> None:
    assert mutations.load_operator(name).name == name


def test_a_dotted_path_names_an_operator() -> None:
    assert isinstance(mutations.load_operator("mutations.tune:Tune"), Tune)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="tune"):
        mutations.load_operator("tun")


def test_a_path_that_cannot_be_imported_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="imported"):
        mutations.load_operator("no_such_module:Thing")
