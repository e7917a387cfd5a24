from __future__ import annotations

import pytest

from mutations.llm.review import SAMPLES, Reviewed, precision, read


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ACCEPT", (False, "")),
        ("REJECT: row 3 is never written", (True, "row 3 is never written")),
        ("After reading it: REJECT - wrong index", (True, "wrong index")),
        ("REJECT", (True, "no reason given")),
        ("I would not reject this", (False, "")),
        ("", (False, "")),
    ],
)
def test_only_a_clear_word_rejects(text: str, found: tuple[bool, str]) -> None:
    assert read(text) == found


def words(*failed: bool | None, rejected: bool = True, start: int = 0) -> list[Reviewed]:
    return [Reviewed(start + n, rejected, one) for n, one in enumerate(failed)]


def test_it_is_watched_until_enough_of_its_rejections_were_checked() -> None:
    assert precision([]).review == "watched"
    assert precision(words(*[True] * (SAMPLES - 1))).review == "watched"
    found = precision(words(*[True] * SAMPLES))
    assert (found.review, found.value) == ("trusted", 1.0)


def test_it_is_sent_away_when_it_does_not_pay_and_stays_away() -> None:
    bad = words(*[False] * SAMPLES)
    assert precision(bad).review == "off"
    assert precision(bad + words(*[True] * 40, start=SAMPLES)).review == "off"


def test_a_trusted_one_that_gets_worse_is_sent_away() -> None:
    good = words(*[True] * SAMPLES)
    assert precision(good + words(False, False, False, start=SAMPLES)).review == "off"


def test_accepted_and_unevaluated_children_measure_nothing() -> None:
    history = words(*[True] * 20, rejected=False) + words(*[None] * 20, start=20)
    assert precision(history).checked == 0
