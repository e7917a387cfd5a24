from __future__ import annotations

from pathlib import Path

import pytest

from evo.archive import Archive
from evo.errors import RefError
from evo.lineage import resolve
from tests.evo import archives


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("nm42", "did you mean nm24"),
        ("bets", "did you mean best"),
        ("{run}/bset", "did you mean best"),
        ("{run}/77", "its candidates: 0 to 5"),
        ("{run}/-1", "write best, or a number"),
        ("none.toml", "No such file"),
        ("zzz", "runs: {run}"),
        ("", "an empty name names no run"),
        ("/", "an empty name names no run"),
    ],
)
def test_what_is_not_there_is_said_with_the_nearest(ref: str, words: str) -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive).id
        with pytest.raises(RefError) as error:
            resolve(archive, ref.format(run=run))
    assert words.format(run=run) in str(error.value)


def test_an_experiment_file(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text('name = "nm24"')
    with Archive.memory() as archive:
        run = archives.fill(archive)
        archives.fill(archive, "other")
        assert resolve(archive, str(path)).run.id == run.id
        path.write_text("name =")
        with pytest.raises(RefError, match="is not TOML"):
            resolve(archive, str(path))


def test_an_empty_run_and_an_empty_archive() -> None:
    with Archive.memory() as archive:
        with pytest.raises(RefError, match="holds no run"):
            resolve(archive, "best")
        run = archives.empty(archive)
        assert resolve(archive, run.id).n is None
        with pytest.raises(RefError, match="has no valid candidate") as error:
            resolve(archive, "best")
        assert f"{run.id}/" not in str(error.value), "no candidate is named that is not there"
        with pytest.raises(RefError, match="none yet"):
            resolve(archive, "0")


def test_best_passes_over_a_later_run_without_a_valid_candidate() -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive)
        broken = archives.empty(archive)
        found = resolve(archive, "best")
        assert (found.run.id, found.passed_over) == (run.id, (broken.id,))
        assert resolve(archive, f"{run.id}/best") == type(found)(run, found.n)
        with pytest.raises(RefError, match=f"{broken.id} has no valid candidate"):
            resolve(archive, f"{broken.id}/best")
