from __future__ import annotations

from pathlib import Path

import pytest

from evo.archive import Archive
from evo.errors import RefError
from evo.lineage import Lineage, resolve
from evo.lineage.refs import Found
from evo.observer import Confirmation
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


def test_without_an_id_a_later_run_without_an_answer_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text('name = "nm24"')
    with Archive.memory() as archive:
        archives.fill(archive, "other")
        run = archives.fill(archive)
        broken = archives.empty(archive)
        for ref, n in (("best", 5), ("3", 3), ("nm24", None), ("nm24/best", 5), ("nm24/3", 3), ("nm2", None),
                       (f"{tmp_path}/file.toml", None)):  # fmt: skip
            assert resolve(archive, ref) == Found(run, n, (broken.id,)), ref
            if n is None:  # who watches it, or goes on with it, means the latest
                assert resolve(archive, ref, latest=True) == Found(broken, n), ref
        assert resolve(archive, "best", latest=True) == resolve(archive, broken.id) == Found(broken, None)
        assert resolve(archive, "other").passed_over == ()
        assert resolve(archive, f"{run.id}/best") == Found(run, 5)
        with pytest.raises(RefError, match=f"{broken.id} has no valid candidate"):
            resolve(archive, f"{broken.id}/best")


def test_a_run_whose_best_were_refuted_lacks_a_confirmed_one() -> None:
    with Archive.memory() as archive:
        run = archives.fill(archive)
        later = archives.fill(archive, confirmed=False)
        archive.add_confirmation(later.id, Confirmation(5, "refuted", 0.9, 0.8, 1.0))
        assert resolve(archive, "nm24").passed_over == (later.id,)
        assert resolve(archive, "nm24").run.id == run.id
        assert Lineage(archive, later).lack() == f"run {later.id} has no confirmed candidate"
