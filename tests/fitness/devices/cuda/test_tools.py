"""What is read out of Nsight Compute and compute-sanitizer; texts recorded on an H200 (driver 580, CUDA 13.0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.devices.cuda import nsight, sanitizer
from fitness.devices.cuda.tools import ToolError, find_tool, run_under
from fitness.gpu import load
from fitness.outcome import Gate
from tests.fitness.devices.cuda.fake import copy_inputs, copy_program

DATA = Path(__file__).parent / "data"


def text(name: str) -> str:
    return (DATA / f"{name}.txt").read_text(encoding="utf-8")


def test_counters_come_out_of_the_csv() -> None:
    ((name, counters),) = nsight.parse(text("ncu"))
    assert name == "spmm"
    assert counters[nsight.TIME] == 49_568
    assert counters[nsight.CONFLICTS] == 112_382
    assert set(nsight.METRICS) <= set(counters)


def test_the_sentence_names_limiter_wait_and_occupancy() -> None:
    counters = nsight.combined(nsight.parse(text("ncu")), {"spmm"})
    said = nsight.sentence(counters)
    assert said.startswith("limited by latency: no unit above 25 % of its peak (SM")
    assert "warps wait most for global loads" in said
    assert "12 % of the warps are resident" in said
    assert "the grid fills 39 % of a wave" in said


def test_a_busy_unit_is_the_limiter() -> None:
    said = nsight.sentence({nsight.MEMORY: 91.0, nsight.SM: 30.0, nsight.SECTORS: 320.0, nsight.REQUESTS: 10.0})
    assert said.startswith("limited by DRAM: 91 % of its peak")
    assert "32 sectors per load request" in said


def test_launches_are_weighted_by_time_and_strangers_left_out() -> None:
    launches = [
        ("a", {nsight.TIME: 300.0, nsight.MEMORY: 80.0, nsight.SECTORS: 5.0}),
        ("b", {nsight.TIME: 100.0, nsight.MEMORY: 40.0, nsight.SECTORS: 7.0}),
        ("harness", {nsight.TIME: 900.0, nsight.MEMORY: 1.0}),
    ]
    counters = nsight.combined(launches, {"a", "b"})
    assert counters[nsight.TIME] == 400.0
    assert counters[nsight.MEMORY] == 70.0
    assert counters[nsight.SECTORS] == 12.0


def test_output_without_counters_has_none() -> None:
    assert nsight.parse("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n") == []
    assert nsight.combined([], {"spmm"}) == {}


def test_memcheck_names_kind_and_line() -> None:
    findings = sanitizer.parse(text("memcheck_write"), "memcheck", Gate.CONFIRMATION)
    assert [(f.kind, f.line, f.severity) for f in findings] == [("out_of_bounds", 35, "error")]
    assert "is out of bounds" in findings[0].message


def test_racecheck_names_the_write() -> None:
    findings = sanitizer.parse(text("racecheck"), "racecheck", Gate.CONFIRMATION)
    assert findings[0].kind == "race"
    assert findings[0].line == 22
    assert all(
        f.severity == "warning" for f in sanitizer.parse(text("racecheck"), "racecheck", Gate.TIMING, advisory=True)
    )


def test_a_clean_run_gives_nothing() -> None:
    clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
    assert sanitizer.parse(clean, "memcheck", Gate.CONFIRMATION) == ()


def test_a_tool_that_does_not_work_is_no_clean_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Error: unrecognised option --padding\n"
    monkeypatch.setattr(sanitizer, "run_under", lambda *_: said)
    with pytest.raises(ToolError, match="unrecognised option"):
        sanitizer.sanitize(copy_program(), copy_inputs(), load("H200"), ("memcheck",))


def test_a_missing_tool_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("fitness.devices.cuda.tools._FOLDERS", ("/nowhere", "/nowhere"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert find_tool("ncu") is None
    with pytest.raises(ToolError, match="ncu is not installed"):
        run_under("ncu", [], copy_program(), copy_inputs(), load("H200"))


def test_a_tool_sees_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "ncu"
    tool.write_text('#!/bin/sh\necho "asked: $@"; test -s "${@##* }"; for last; do :; done; wc -c < "$last"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said = run_under("ncu", ["--csv"], copy_program(), copy_inputs(), load("H200"))
    assert said.startswith("asked: --csv")
    assert "fitness.devices.cuda.replay" in said
    assert int(said.split()[-1]) > 100
