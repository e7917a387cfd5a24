"""best.cu is a kernel file that is the best kernel; best.ptx is what it compiles to."""

from __future__ import annotations

from pathlib import Path

import pytest

from evo.report.best import standalone_source, write_best
from fitness.kernel import load_kernel, parse_kernel
from fitness.task import Task
from tests.evo import archives


def fused_task() -> Task:
    return Task.from_spec({"op": "gemm", "epilogue": ["bias", "relu"], "shapes": [{"M": 64, "N": 8, "K": 64}]})


def test_chosen_params_become_the_defaults() -> None:
    best = archives.kernel(BM=64, BN=16)
    again = parse_kernel(standalone_source(best, "evo run nm24-7f3a, candidate 5"))
    assert dict(again.params) == {"BM": 64, "BN": 16}
    assert again.source.endswith("// evo run nm24-7f3a, candidate 5\n// params: BM = 64, BN = 16\n")


def test_code_stays_as_it_is() -> None:
    best = archives.kernel(BM=64)
    body = best.source.split("---*/")[1]
    assert body.strip() in standalone_source(best, "note")


def test_a_header_in_another_layout_keeps_its_source_and_names_the_params() -> None:
    table = "[params.BM]\nvalues = [16, 32, 64]\ndefault = 16\n"
    source = archives.SOURCE.replace("BM = { values = [16, 32, 64], default = 16 }\n", "").replace(
        "---*/", table + "---*/"
    )
    best = parse_kernel(source % "odd", params={"BM": 64})
    text = standalone_source(best, "note")
    assert text.startswith(best.source.rstrip())
    assert "// params: BN = 8, BM = 64" in text


def test_writes_source_and_ptx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path / "cache"))
    files = write_best(archives.kernel(BM=64), fused_task(), "sm_90a", tmp_path, "note")
    assert [file.name for file in files] == ["best.cu", "best.ptx"]
    assert load_kernel(files[0]).params["BM"] == 64
    assert ".visible .entry spmm" in files[1].read_text(encoding="utf-8")
    assert files[0].read_text(encoding="utf-8").endswith("\n// compiled with: -DEVO_EPILOGUE=.bias().relu()\n")
