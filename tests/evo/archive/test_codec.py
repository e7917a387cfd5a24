from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.archive import codec
from fitness.outcome import OUTCOMES, Cost, Finding, Gate, Outcome, Resources, Timed, Timing, WrongValues

text = st.text(st.characters(codec="utf-8"), max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(1e-6, 1e9)
shapes = st.dictionaries(st.sampled_from("MNK"), st.integers(1, 2**40), min_size=1)
wrongs = st.builds(
    WrongValues, finite, finite, st.floats(allow_nan=False), st.integers(0, 9), st.integers(0, 9),
    st.tuples(st.integers(0, 99), st.integers(0, 99)), st.floats(allow_nan=False), finite, text,
)  # fmt: skip
findings = st.builds(
    Finding, st.sampled_from(Gate), text, text, st.none() | st.integers(1, 999), text,
    st.sampled_from(["error", "warning", "note"]), st.none() | shapes, st.none() | wrongs,
)  # fmt: skip
timings = st.builds(
    Timing, shapes, st.sampled_from(["modelled", "measured"]), positive, positive, positive, positive, positive,
    positive, text, st.booleans(), st.lists(positive, max_size=3).map(tuple),
)  # fmt: skip
common: dict[str, Any] = {
    "stage": st.sampled_from(Gate),
    "findings": st.lists(findings, max_size=3).map(tuple),
    "cost": st.builds(Cost, positive, positive),
    "code_key": st.none() | text,
}
outcomes = st.one_of(
    *(st.builds(kind, **common) for name, kind in OUTCOMES.items() if name != "Timed"),
    st.builds(
        Timed,
        **common,
        clock=st.sampled_from(["modelled", "measured"]),
        timings=st.lists(timings, max_size=3).map(tuple),
        resources=st.builds(Resources, st.integers(0, 255), st.integers(0, 2**18), st.integers(0, 999), positive),
    ),
)


@settings(max_examples=50, deadline=None)
@given(outcomes)
def test_every_outcome_comes_back_exactly(outcome: Outcome) -> None:
    row = json.loads(json.dumps(codec.outcome_row(outcome), allow_nan=False))
    times = [codec.timing_row(timing) for timing in outcome.timings] if isinstance(outcome, Timed) else []
    back = codec.outcome_of(row, [codec.timing_of(time) for time in times])
    assert type(back) is type(outcome)
    assert back == outcome


def test_nan_in_a_wrong_value_comes_back() -> None:
    wrong = WrongValues(1.0, math.inf, math.inf, 1, 4, (0, 3), math.nan, 2.0, "NaN")
    finding = Finding(Gate.SMALL_RUN, "wrong_result", "not finite", wrong=wrong)
    row = codec.outcome_row(OUTCOMES["WrongResult"](Gate.SMALL_RUN, (finding,)))
    assert "NaN" not in row["findings"].replace('"NaN"', "")
    back = codec.outcome_of(row, ()).findings[0].wrong
    assert back is not None
    assert math.isnan(back.got)
    assert back.margin == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_time_that_is_not_finite_is_a_fault(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        codec.timing_row(Timing({"N": 1}, "modelled", bad, 1, 1, 1, 1, 1))


def test_numpy_scalars_are_stored_as_numbers() -> None:
    timing = Timing({"N": np.int64(3)}, "modelled", np.float64(1.5), 1, 1, 1, 1, 1)  # type: ignore[dict-item]
    row = codec.timing_row(timing)
    assert row["shape"] == '{"N":3}'
    assert type(row["time_us"]) is float
    resources = Resources(np.int32(4), 0, 0, 0.5)  # type: ignore[arg-type]
    assert type(codec.outcome_row(Timed(Gate.TIMING, resources=resources))["registers"]) is int


@pytest.mark.parametrize(
    "change", [{"kind": "Nonsense"}, {"stage": "LATER"}, {"findings": "{"}, {"findings": '[{"gate":"PARSE"}]'}]
)
def test_rows_that_are_not_ours_are_refused(change: dict[str, str]) -> None:
    row = codec.outcome_row(OUTCOMES["Rejected"](Gate.PARSE)) | change
    with pytest.raises(codec.DamagedRowError):
        codec.outcome_of(row, ())
    with pytest.raises(codec.DamagedRowError, match="clock"):
        codec.timing_of(codec.timing_row(Timing({}, "modelled", 1, 1, 1, 1, 1, 1)) | {"clock": "guessed"})
