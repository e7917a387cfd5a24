"""What the simulator runs, family by family: the table of docs/simulator.md is made here and checked by a test.

    python -m tests.fitness.simulator.coverage            # writes the table into docs/simulator.md

coverage.toml lists the families. Every form is a PTX instruction that the code generator is given; `{a,b}` stands for
either. Evidence is the test module that compares with NumPy (or Python's integers and rationals), and how many vectors
a card has recorded.
"""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fitness.devices.simulator import ptx_parser
from fitness.devices.simulator.codegen import generate
from fitness.devices.simulator.faults import Stop

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "simulator.md"
DATA = Path(__file__).parent / "data"
BEGIN, END = "<!-- coverage: made by tests/fitness/simulator/coverage.py -->", "<!-- end of coverage -->"


@dataclass(frozen=True)
class Family:
    """Instructions of one kind.

    Attributes:
        forms: as described above; registers are %p (pred), %h (16), %r (32), %d (64), %q (128 bits), %f, %g (f32, f64).
        tests: modules that compare values. recorded: pattern of the names of recorded vectors.
        refused: forms that exist on sm_80..sm_90a and are not run.
    """

    name: str
    forms: tuple[str, ...]
    tests: tuple[str, ...]
    recorded: str
    refused: tuple[str, ...] = ()


def families() -> tuple[Family, ...]:
    """Everything coverage.toml lists."""
    listed = tomllib.loads((Path(__file__).parent / "coverage.toml").read_text())["family"]
    return tuple(
        Family(f["name"], tuple(f["forms"]), tuple(f["tests"]), f["recorded"], tuple(f["refused"])) for f in listed
    )


FAMILIES = families()


def expanded(form: str) -> Iterator[str]:
    """The instructions that a form with alternatives stands for."""
    parts = re.split(r"(\{[^%{} ]*,[^%{}]*\})", form)
    choices = [part[1:-1].split(",") if part.startswith("{") and "%" not in part else [part] for part in parts]
    for chosen in itertools.product(*choices):
        yield "".join(chosen)


_REGISTERS = "".join(f".reg .{kind} %{name}<4>; " for name, kind in (
    ("p", "pred"), ("h", "b16"), ("r", "b32"), ("d", "b64"), ("f", "f32"), ("g", "f64"), ("q", "b128")))  # fmt: skip


def runs(instruction: str) -> bool:
    """Whether the code generator knows the instruction."""
    if ".pred" in instruction.split(" ")[0] and not re.search(r"vote|bar", instruction):
        instruction = instruction.replace("%r", "%p")
    if "parity" in instruction:
        instruction = instruction.replace("%d1", "%r1")
    head = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n"
    text = f"{head}{{ {_REGISTERS}\n{instruction};\nret; }}\n"
    try:
        kernel = generate(ptx_parser.parse(text), "k", track=True)
    except Stop:
        return False
    compile(kernel.source, "k", "exec")
    return not any(isinstance(value, Stop) for value in kernel.space.values())


def vectors() -> list[str]:
    """Names of everything a card has recorded."""
    index = json.loads(np.load(DATA / "h200_instructions.npz")["index"].tobytes())
    names = [f"scalar {row[0]}" for row in index["scalar"]] + [f"tensor {row[0]}" for row in index["tensor"]]
    kept = {name.rsplit("/", 1)[0] for name in np.load(DATA / "h200_hopper.npz").files if "/" in name}
    return names + sorted(kept)


def table() -> str:
    """The coverage as Markdown."""
    names = vectors()
    rows = ["| family | forms run | compared with NumPy in | vectors of an H200 | refused |", "|---|---|---|---|---|"]
    for family in FAMILIES:
        count = sum(1 for form in family.forms for _ in expanded(form))
        tests = ", ".join(f"`{name}`" for name in family.tests)
        recorded = sum(1 for name in names if re.search(family.recorded, name))
        refused = "; ".join(f"`{r.split(' ')[0]}`" if "%" in r else r for r in family.refused)
        rows.append(f"| {family.name} | {count} | {tests} | {recorded or 'none yet'} | {refused} |")
    return "\n".join(rows)


def document() -> str:
    """The document with the table in its place."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
