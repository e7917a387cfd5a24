"""The measurements of a card, as far as they can be tried without one: records, schedules, sources, arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.gpu import judging, measure, numbers, table
from benchmarks.gpu.extension import Build
from benchmarks.gpu.recording import Record, from_process
from benchmarks.gpu.subjects import SMALL, SPEC, case_of, delayed, distinct, program_of, redteam, seed
from fitness.task import Task


def counted(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"number": number}
    if count == 3:
        os._exit(7)


def test_a_record_is_whole_at_every_moment(tmp_path: Path) -> None:
    record = Record(tmp_path / "deep" / "x.json", "python x", 60.0)
    record.add(a=np.float64(1.5))
    record.put(delta=0.25)
    half = json.loads(record.path.read_text())
    assert (half["rows"][0]["a"], half["delta"], half["complete"]) == (1.5, 0.25, False)
    assert {"card", "host", "date", "command"} <= set(half)
    record.finish("done")
    assert json.loads(record.path.read_text())["complete"] is True
    assert not list(tmp_path.rglob("*.part"))


def test_rows_of_a_process_survive_its_end() -> None:
    assert list(from_process(counted, 2, seconds=60.0)) == [{"number": 0}, {"number": 1}]
    assert list(from_process(counted, 3, seconds=60.0))[-1] == {"died": "exit code 7"}


def test_three_of_ten_are_faulty_and_every_kind_comes() -> None:
    names = judging.schedule(200)
    faulty = [name for name in names if name in judging.FAULTY]
    assert len(names) == 200
    assert len(faulty) == 60
    assert set(names) == {*judging.FAULTY, *judging.GOOD}
    for name in names:
        assert redteam(name).header.about


def test_the_slower_control_waits_in_every_entry_and_compiles() -> None:
    kernel = seed("spmm/nm24_mma_sp_fragment")
    slower = delayed(kernel, 500)
    entries = {launch.kernel for launch in kernel.header.launches}
    assert slower.source.count("clock64() - began < 500") >= len(entries)
    assert program_of(slower, case_of(slower, 16)).launches == program_of(kernel, case_of(kernel, 16)).launches


def test_candidates_of_the_throughput_run_are_distinct() -> None:
    kernels = distinct(40, np.random.default_rng(5))
    assert len({kernel.id for kernel in kernels}) == len(kernels) == 40


def test_the_extension_holds_the_kernel_and_its_macros() -> None:
    kernel = seed("spmm/nm24_mma_sp_fragment")
    with Build(kernel, Task.from_spec(SPEC)) as build:
        arguments = build.arguments()
        folder = Path(arguments["folder"])
        assert (folder / "candidate.cu").read_text() == kernel.source
        assert set(kernel.defines) <= set(arguments["flags"])
    assert not folder.exists()


def test_phases_are_named_and_a_failing_one_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(record: Record) -> str:
        record.add(n=1)
        raise RuntimeError("no card")

    monkeypatch.setitem(measure.PHASES, "vendors", (broken, 5.0))
    monkeypatch.setitem(measure.PHASES, "seeds", (lambda _: "all well", 5.0))
    done = CliRunner().invoke(measure.main, [str(tmp_path), "vendors", "seeds"])
    assert done.exit_code == 1
    assert "no card" in done.output
    assert "seeds (0 s): all well" in done.output
    assert json.loads((tmp_path / "vendors.json").read_text())["rows"][0]["n"] == 1
    assert CliRunner().invoke(measure.main, [str(tmp_path), "nosuch"]).exit_code == 2


def test_every_tolerance_case_fits_its_task() -> None:
    for dtype in numbers.DTYPES:
        cases = list(numbers._cases(dtype))
        assert len(cases) == len(numbers.SIZES) * len(numbers.DATA)
        assert all(task.dtype == dtype for task, _, _ in cases)


@pytest.mark.slow
def test_faults_are_judged_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "CARD", "simulator")
    record = Record(tmp_path / "faults.json", "x", 8.0)  # too short for the part that times hangs
    summary = judging.faults(record, count=2)
    assert [row["right"] for row in record.rows] == [True, True], record.rows
    assert "2 of 2 judged, 0 wrong" in summary
    assert Task.from_spec(SMALL).shapes


def test_tolerances_are_summed_up_by_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def margins_of(*job: object, seconds: float) -> Iterator[dict[str, Any]]:
        _, name, dtype = job[:3]
        if dtype == "float16" and name == "cublas":
            yield {"subject": name, "dtype": dtype, "element": 0.25, "line": 0.3}
        if name == "cublas+tf32":
            yield {"subject": name, "dtype": dtype, "element": 9.0, "line": 2.0}
        if name == "cusparselt":
            yield {"died": f"exit code 1, {seconds > 0}"}

    monkeypatch.setattr(numbers, "from_process", margins_of)
    record = Record(tmp_path / "tolerance.json", "x", 30.0)
    summary = numbers.tolerance(record)
    assert record.content["worst"] == {"float16 cublas": 0.3, "float32 cublas+tf32": 9.0}
    assert "honest at most 0.300" in summary
    assert "cheats at least 9" in summary
    assert sum("died" in row for row in record.rows) == 3


def test_the_tables_of_the_docs_are_those_of_the_data() -> None:
    for path, made in ((table.PAGE, table.table()), (table.README, table.short_table())):
        page = path.read_text(encoding="utf-8")
        assert table.BEGIN in page
        assert table.with_table(page, made) == page, "run python -m benchmarks.gpu.table"
        rows = [line for line in made.splitlines() if line.startswith("| ")]
        assert any("nm24_wgmma_sp" in row for row in rows)
        assert any("cublas" in row for row in rows)
        assert rows[1].startswith("| **found by evo**"), "it is the fastest of all"
        assert rows[-1].startswith("| floor")
