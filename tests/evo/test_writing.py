from __future__ import annotations

import errno
from pathlib import Path

import pytest

from evo.errors import EvoError
from evo.writing import whole, writing


def end_halfway(path: Path, error: BaseException) -> None:
    with whole(path) as unfinished:
        unfinished.write_text("half")
        raise error


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with whole(path) as unfinished:
        unfinished.write_text("first")
    assert path.read_text() == "first"
    for error in (OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            end_halfway(path, error)
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_a_place_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EvoError) as caught, writing(tmp_path / "file" / "deep"):
        (tmp_path / "file" / "deep").mkdir()
    problem = f"{tmp_path}/file/deep cannot be written (not a directory)"
    assert str(caught.value) == f"{problem}; say where to write with --out"
    with pytest.raises(EvoError, match=r"x cannot be written \(TimeoutError\); do this"), writing(Path("x"), "do this"):
        raise TimeoutError
    with pytest.raises(EvoError, match="x cannot be written: the disk is full; free some space"), writing(Path("x")):
        raise OSError(errno.ENOSPC, "No space left on device")
