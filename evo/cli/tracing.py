"""`evo evaluate --trace`: where to look, and what was seen there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from evo.errors import EvoError
from evo.progress import shape_text
from fitness.devices.simulator.tracing import Named, Point, Step
from fitness.feedback import Trace

_EXAMPLE = "write --trace line=57 thread=0,0,0 block=1,0,0 (sizes such as N=8 may follow)"


def place(words: Sequence[str], sizes: Sequence[str]) -> tuple[Point, dict[str, int]]:
    """The point and the changed sizes that words such as "line=57" and "N=8" name.

    Args:
        words: as given; commas within, blanks between.
        sizes: names of the task's sizes.

    Raises:
        EvoError: one of them means nothing here, or the line is missing.
    """
    numbers: dict[str, tuple[int, ...]] = {}
    for word in " ".join(words).split():
        name, _, value = word.partition("=")
        parts = value.split(",")
        if name not in ("line", "thread", "block", *sizes) or not all(part.isdecimal() for part in parts):
            known = ", ".join(["line", "thread", "block", *sizes])
            raise EvoError(f"--trace {word}: numbers of {known} are wanted", _EXAMPLE)
        numbers[name] = tuple(map(int, parts))
    if len(numbers.get("line", ())) != 1:
        raise EvoError("--trace needs one source line", _EXAMPLE)
    for name in ("thread", "block"):
        if len(numbers.get(name, (0,))) > 3:
            raise EvoError(f"--trace {name}: at most three numbers, x,y,z", _EXAMPLE)
    for name in sizes:
        if len(numbers.get(name, (1,))) != 1 or numbers.get(name, (1,))[0] < 1:
            raise EvoError(f"--trace {name}: one size of at least 1 is wanted", _EXAMPLE)
    point = Point(numbers["line"][0], _three(numbers.get("thread", ())), _three(numbers.get("block", ())))
    return point, {name: numbers[name][0] for name in sizes if name in numbers}


def _three(numbers: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*numbers, 0, 0, 0)[:3]
    return x, y, z


def lines(trace: Trace) -> list[str]:
    """A trace for a person, one line per instruction."""
    point = trace.point
    said = [
        f"trace     line {point.line}: {trace.source}",
        f"          thread {point.thread} of block {point.block}, {shape_text(trace.shape)}, simulated with all checks",
    ]
    entry = ""
    for number, step in enumerate(trace.steps, 1):
        if step.entry != entry:
            entry = step.entry
            said.append(f"          in {entry}")
        said.append(f"{number:9d} {_step(step)}")
    if trace.left_out:
        said.append(f"          and {trace.left_out} more instructions of this line")
    return said


def _step(step: Step) -> str:
    parts = [step.text.rstrip(";")]
    if step.reads:
        parts.append("reads " + ", ".join(map(_named, step.reads)))
    parts += [f"at {where}" for where in step.places]
    if step.writes:
        parts.append("gives " + ", ".join(map(_named, step.writes)))
    return " | ".join(parts)


def _named(named: Named) -> str:
    return f"{named.name} = {named.value}" + ("" if named.known else " (uninitialised)")


def as_json(trace: Trace) -> dict[str, Any]:
    """A trace for a program."""
    return {
        "shape": dict(trace.shape),
        **dataclasses.asdict(trace.point),
        "source": trace.source,
        "steps": [dataclasses.asdict(step) for step in trace.steps],
        "left_out": trace.left_out,
    }
