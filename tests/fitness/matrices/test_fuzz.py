"""Whatever a file holds, a reader gives a matrix or a MatrixError: no crash, no hang, no memory bomb.

A short run of the search that `benchmarks/fuzz_readers.py` makes for minutes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_readers import KINDS, check, damaged, files


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_never_break_a_reader(kind: str) -> None:
    # an inner function, as the kind decides what is drawn
    @settings(max_examples=60, deadline=2000, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def run(data: st.DataObject) -> None:
        content = data.draw(damaged(data.draw(files(kind))))
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder) / f"a{kind}", content)

    run()
