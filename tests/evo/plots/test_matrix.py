"""The picture of a matrix."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evo.plots.matrix import MatrixPicture
from evo.plots.picture import as_csv, save


def picture(density: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> MatrixPicture:
    return MatrixPicture("w", (40, 20), density, (0, 1, 2, 4), (3, 2, 1))


@pytest.mark.parametrize("density", [np.eye(4) / 3, np.zeros((4, 4)), np.ones((1, 4))])
def test_any_matrix_can_be_drawn_and_always_alike(
    tmp_path: Path, density: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> None:
    first = save(picture(density), tmp_path / "a", "w", ("png", "svg"))
    second = save(picture(density), tmp_path / "b", "w", ("png", "svg"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_the_numbers_are_all_there() -> None:
    lines = as_csv(picture(np.eye(4) / 3).table()).splitlines()
    assert lines[0] == "panel,row,column,value"
    assert lines[1] == "density,0,0,0.333333"
    assert lines[-3:] == ["rows,0,,3", "rows,1,,2", "rows,2,,1"]
    assert len(lines) == 1 + 16 + 3
