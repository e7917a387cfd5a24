"""The tables of measured times in README.md and docs/gpu.md, from benchmarks/gpu/data and the archive that comes along.

python -m benchmarks.gpu.table          writes them between their two markers
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu.subjects import GPU, SPEC
from evo.archive import Archive
from fitness.task import Task

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpu.md"
README = ROOT / "README.md"
FIRST = ("cusparselt", "cublas", "cublaslt", "torch_compile", "seed `nm24_wgmma_sp`")
"""Rows of the README's table besides what evo found and the floor."""
DATA = Path(__file__).parent / "data"
BEGIN, END = "<!-- measured: made by python -m benchmarks.gpu.table -->", "<!-- end of measured -->"


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return content


def found() -> tuple[str, list[float]]:
    """The latest confirmed kernel of a measured nm24 run in archive.db: its reference, times as confirmed (us)."""
    with Archive.open(ROOT / "archive.db", readonly=True) as archive:
        for run, n in archive.confirmed():
            if run.name == "nm24" and run.clock == "measured":
                return f"{run.id}/{n}", [timing.time_us for timing in archive.confirmation_timings(run.id, n)]
    raise SystemExit("archive.db has no confirmed, measured nm24 run")


def _rows() -> list[tuple[str, list[float]]]:
    """Name and times of everything measured, fastest first."""
    reference, its = found()
    timed = [(f"**found by evo**, `{reference}`", its)]
    timed += [(f"seed `{row['name']}`", row["us"]) for row in _read("seeds")["rows"] if row["us"]]
    timed += [(f"`{row['name']}`", row["us"]) for row in _read("vendors")["rows"] if row["us"]]
    return sorted(timed, key=lambda item: item[1][0] * item[1][-1])


def _markdown(rows: list[tuple[str, list[float]]]) -> list[str]:
    task = Task.from_spec(SPEC)
    floors = [task.floor_us(shape, GPU) for shape in task.shapes]
    header = " | ".join(f"N = {shape['N']}, us | of the floor" for shape in task.shapes)
    lines = [f"| kernel | {header} |", "|---" * (1 + 2 * len(floors)) + "|"]
    return lines + [_line(name, us, floors) for name, us in [*rows, ("floor", floors)]]


def table() -> str:
    """Markdown: what evo found, the seeds, the vendor routines and the floor at the shapes of nm24."""
    vendors = _read("vendors")
    without = [f"`{row['name']}`: {_short(row['why_not'])}" for row in vendors["rows"] if not row["us"]]
    lines = [_source(name, _read(name)) for name in ("seeds", "vendors")]
    lines += ["", *_markdown(_rows())]
    lines += ["", "Without a time: " + "; ".join(without) + "."] if without else []
    return "\n".join(lines)


def short_table() -> str:
    """The rows a reader looks for first."""
    wanted = {f"`{name}`" if " " not in name else name for name in FIRST}
    return "\n".join(_markdown([row for row in _rows() if row[0] in wanted or row[0].startswith("**")]))


def _source(name: str, content: dict[str, Any]) -> str:
    card, driver, *_ = (part.strip() for part in content["card"].split(","))
    return f"`benchmarks/gpu/data/{name}.json`: {card}, driver {driver}, {content['date'][:10]}.  "


def _line(name: str, us: list[float], floors: list[float]) -> str:
    cells = " | ".join(f"{time:.2f} | {floor / time:.2f}" for time, floor in zip(us, floors, strict=True))
    return f"| {name} | {cells} |"


def _short(text: str) -> str:
    return text.split("(")[0].strip().rstrip("`").strip()[:90]


def with_table(page: str, text: str) -> str:
    """The page with a table of today's data between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


if __name__ == "__main__":
    for path, made in ((PAGE, table()), (README, short_table())):
        path.write_text(with_table(path.read_text(encoding="utf-8"), made), encoding="utf-8")
