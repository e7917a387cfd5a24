"""The scripts under docs/examples run as documented, on an archive with one run."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.evo import archives

EXAMPLES = sorted((Path(__file__).parents[1] / "docs" / "examples").glob("*.py"))
EXPECTED = {
    "speedup_of_operators": "tune: median gain 1.414 (modelled), 2 faster",
    "steps_that_mattered": "#2 1.414x tune: 0 lines; BM 16 -> 32",
    "why_candidates_failed": "   1  CompileFailed unknown_api  use __shfl_sync",
}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_example(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archives.make(tmp_path / "runs" / "archive.db")
    monkeypatch.chdir(tmp_path)
    (usage,) = re.findall(r"^ *python (docs/examples/\S+) (.*)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert usage[0] == f"docs/examples/{script.name}"
    monkeypatch.setattr(sys, "argv", [str(script), *usage[1].split()])
    runpy.run_path(str(script), run_name="__main__")
    assert EXPECTED[script.stem] in capsys.readouterr().out


def test_there_are_three() -> None:
    assert {path.stem for path in EXAMPLES} == set(EXPECTED)
