"""docs/gallery.md shows every kind of plot as the shipped archive gives it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from evo.archive import Archive, keeping
from evo.cli.plot import KINDS
from evo.lineage import resolve
from evo.plots import as_csv
from evo.plots.picture import COLUMN_WIDTH_IN
from evo.report.series import KINDS as MAKERS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^evo plot (.*)$", PAGE, re.MULTILINE)
PICTURES = re.findall(r"\]\(images/gallery/(\w+)\.png\)", PAGE)
ELSEWHERE = {"dollars"}
"""Kinds that need runs the shipped archive does not have; the page says so."""


def test_every_kind_is_shown_by_its_command() -> None:
    kinds = [shlex.split(command)[2] for command in COMMANDS]
    assert kinds == PICTURES
    assert set(kinds) | ELSEWHERE == set(KINDS)
    assert all(f"--kind {kind}" in PAGE for kind in KINDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_picture_shows_the_numbers_of_the_archive(command: str) -> None:
    ref, _, kind, option, archive = shlex.split(command)
    assert option == "--archive"
    with Archive.open(ROOT / archive, readonly=True) as opened:
        picture = MAKERS[kind].make(opened, [resolve(opened, ref).run])
    folder = ROOT / "docs" / "images" / "gallery"
    shown = (folder / f"{kind}.csv").read_text(encoding="utf-8")
    assert shown == as_csv(picture.table()), "the archive has changed: make gallery"
    with Image.open(folder / f"{kind}.png") as image:
        assert image.width == round(COLUMN_WIDTH_IN * 300)
        assert image.height == pytest.approx(picture.height_in * 300, abs=1)
        assert len(image.convert("L").getcolors() or ()) > 20, "not an empty picture"


def test_the_shipped_archive_is_sound_small_and_verified() -> None:
    path = ROOT / "archive.db"
    assert path.stat().st_size < 8e6
    with Archive.open(path, readonly=True) as archive:
        assert list(keeping.check(archive)) == []
        runs = keeping.info(archive).runs
    assert runs
    assert all(run.confirmed for run in runs)
