"""Outcomes <-> archive rows, exactly: decode(encode(x)) == x for every kind of outcome.

JSON holds no NaN or infinity (readers such as SQLite's json functions refuse them), so the floats of
findings that are not finite are written as the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

from fitness.outcome import OUTCOMES, Clock, Cost, Finding, Gate, Outcome, Resources, Timed, Timing, WrongValues

Row = dict[str, Any]

_FLOATS = ("max_abs", "max_rel", "margin", "got", "want")


class DamagedRowError(ValueError):
    """A row this version of evo cannot have written."""


def to_json(value: object) -> str:
    """Compact JSON; NumPy scalars become Python numbers, NaN and infinities are refused.

    Raises:
        ValueError: a float that is not finite, or an object JSON cannot hold.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)


def from_json(text: str) -> Any:
    """The value of a JSON column.

    Raises:
        DamagedRowError: the text is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise DamagedRowError(f"{text[:40]!r} is not JSON") from error


def outcome_row(outcome: Outcome) -> Row:
    """Columns of `outcomes`, without the key columns and `judged_at`."""
    row: Row = {
        "kind": outcome.kind,
        "stage": outcome.stage.name,
        "code_key": outcome.code_key,
        "findings": to_json([_finding_json(finding) for finding in outcome.findings]),
        "compile_s": float(outcome.cost.compile_s),
        "evaluate_s": float(outcome.cost.evaluate_s),
        "clock": None,
        "registers": None,
        "shared_bytes": None,
        "spill_bytes": None,
        "occupancy": None,
    }
    if isinstance(outcome, Timed):
        resources = outcome.resources
        row |= {
            "clock": outcome.clock,
            "registers": int(resources.registers),
            "shared_bytes": int(resources.shared_bytes),
            "spill_bytes": int(resources.spill_bytes),
            "occupancy": float(resources.occupancy),
        }
    return row


def outcome_of(row: Row, timings: Iterable[Timing]) -> Outcome:
    """The outcome of an `outcomes` row and its timings, in order.

    Raises:
        DamagedRowError: kind, stage or findings are not ours.
    """
    try:
        kind = OUTCOMES[row["kind"]]
        common: dict[str, Any] = {
            "stage": Gate[row["stage"]],
            "findings": tuple(_finding_of(data) for data in json.loads(row["findings"])),
            "cost": Cost(row["compile_s"], row["evaluate_s"]),
            "code_key": row["code_key"],
        }
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRowError(f"outcome of candidate {row.get('n')}: {error!r}") from error
    if kind is not Timed:
        return kind(**common)
    resources = Resources(row["registers"], row["shared_bytes"], row["spill_bytes"], row["occupancy"])
    return Timed(**common, clock=_clock(row["clock"]), timings=tuple(timings), resources=resources)


def timing_row(timing: Timing) -> Row:
    """Columns of `timings` that come from the timing itself.

    Raises:
        ValueError: a time that is not finite (an evaluator fault, never a verdict).
    """
    values = (timing.time_us, timing.low_us, timing.high_us, timing.floor_us, timing.tflops, timing.gb_per_s)
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"a timing is not finite: {timing}")
    return {
        "shape": to_json(dict(timing.shape)),
        "clock": timing.clock,
        "cold": int(timing.cold),
        "time_us": float(timing.time_us),
        "low_us": float(timing.low_us),
        "high_us": float(timing.high_us),
        "floor_us": float(timing.floor_us),
        "tflops": float(timing.tflops),
        "gb_per_s": float(timing.gb_per_s),
        "limiter": timing.limiter,
        "samples_us": to_json(list(timing.samples_us)),
    }


def timing_of(row: Row) -> Timing:
    """The timing of a `timings` row.

    Raises:
        DamagedRowError: a column is not ours.
    """
    try:
        return Timing(
            shape=json.loads(row["shape"]),
            clock=_clock(row["clock"]),
            time_us=row["time_us"],
            low_us=row["low_us"],
            high_us=row["high_us"],
            floor_us=row["floor_us"],
            tflops=row["tflops"],
            gb_per_s=row["gb_per_s"],
            limiter=row["limiter"],
            cold=bool(row["cold"]),
            samples_us=tuple(json.loads(row["samples_us"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRowError(f"timing of candidate {row.get('n')}: {error!r}") from error


def _clock(value: str | None) -> Clock:
    if value not in get_args(Clock):
        raise DamagedRowError(f"clock {value!r}")
    return cast("Clock", value)


def _finding_json(finding: Finding) -> dict[str, object]:
    """Fields that differ from their defaults; shape and wrong values as objects."""
    data: dict[str, object] = {"gate": finding.gate.name, "kind": finding.kind, "message": finding.message}
    for name in ("line", "suggestion", "severity"):
        value = getattr(finding, name)
        if value != Finding.__dataclass_fields__[name].default:
            data[name] = value
    if finding.shape is not None:
        data["shape"] = dict(finding.shape)
    if finding.wrong is not None:
        wrong = {field.name: getattr(finding.wrong, field.name) for field in dataclasses.fields(WrongValues)}
        data["wrong"] = wrong | {name: _float_json(wrong[name]) for name in _FLOATS}
    return data


def _finding_of(data: Mapping[str, Any]) -> Finding:
    fields = dict(data)
    wrong = fields.pop("wrong", None)
    if wrong is not None:
        floats = {name: float(wrong[name]) for name in _FLOATS}
        wrong = WrongValues(**(wrong | floats | {"first": tuple(wrong["first"])}))
    return Finding(**(fields | {"gate": Gate[fields["gate"]], "wrong": wrong}))


def _float_json(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def _plain(value: object) -> object:
    """NumPy scalars by `.item()`, other mappings and sequences by their plain kind."""
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)
