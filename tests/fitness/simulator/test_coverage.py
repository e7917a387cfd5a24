"""The list of coverage in docs/simulator.md: every form it counts is run, what it calls refused is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fitness.simulator.coverage import DOCUMENT, FAMILIES, Family, document, expanded, runs


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_form_is_run(family: Family) -> None:
    wrong = [one for form in family.forms for one in expanded(form) if not runs(one)]
    assert not wrong


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_called_refused_is_refused(family: Family) -> None:
    assert not [form for form in family.refused if "%" in form and runs(form)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_named_tests_exist(family: Family) -> None:
    assert all((Path(__file__).parent / f"{name}.py").is_file() for name in family.tests)


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == document(), "python -m tests.fitness.simulator.coverage"
