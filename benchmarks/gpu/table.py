"""The table of measured times in docs/gpu.md, made from benchmarks/gpu/data.

python -m benchmarks.gpu.table          writes it between its two markers
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.subjects import GPU, SPEC
from fitness.task import Task

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpu.md"
DATA = Path(__file__).parent / "data"
BEGIN, END = "<!-- measured: made by python -m benchmarks.gpu.table -->", "<!-- end of measured -->"


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return content


def table() -> str:
    """Markdown: the seeds, the vendor routines and the floor at the shapes of nm24, microseconds, fastest first."""
    task = Task.from_spec(SPEC)
    seeds, vendors = _read("seeds"), _read("vendors")
    floors = [task.floor_us(shape, GPU) for shape in task.shapes]
    timed = [(f"seed `{row['name']}`", row["us"]) for row in seeds["rows"] if row["us"]]
    timed += [(f"`{row['name']}`", row["us"]) for row in vendors["rows"] if row["us"]]
    timed.sort(key=lambda item: item[1][0] * item[1][-1])
    without = [f"`{row['name']}`: {_short(row['why_not'])}" for row in vendors["rows"] if not row["us"]]
    header = " | ".join(f"N = {shape['N']}, us | of the floor" for shape in task.shapes)
    lines = [_source(name, content) for name, content in (("seeds", seeds), ("vendors", vendors))]
    lines += ["", f"| kernel | {header} |", "|---" * (1 + 2 * len(floors)) + "|"]
    lines += [_line(name, us, floors) for name, us in [*timed, ("floor", floors)]]
    lines += ["", "Without a time: " + "; ".join(without) + "."] if without else []
    return "\n".join(lines)


def _source(name: str, content: dict[str, Any]) -> str:
    card, driver, *_ = (part.strip() for part in content["card"].split(","))
    return f"`benchmarks/gpu/data/{name}.json`: {card}, driver {driver}, {content['date'][:10]}.  "


def _line(name: str, us: list[float], floors: list[float]) -> str:
    cells = " | ".join(f"{time:.2f} | {floor / time:.2f}" for time, floor in zip(us, floors, strict=True))
    return f"| {name} | {cells} |"


def _short(text: str) -> str:
    return text.split("(")[0].strip().rstrip("`").strip()[:90]


def with_table(page: str) -> str:
    """The page with the table of today's data between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
