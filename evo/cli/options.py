"""Options that several commands share, and the archive they read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import click

import evo
from evo.cli.boundary import READ_FROM

if TYPE_CHECKING:
    from evo.archive import Archive
    from evo.lineage.refs import Found

WORKING_ARCHIVE = Path("runs/archive.db")
"""Where runs are archived unless the experiment or --archive says otherwise; relative to the current folder."""

_PACKAGE = Path(evo.__file__).parent
SHIPPED_ARCHIVES = (_PACKAGE / "shipped" / "archive.db", _PACKAGE.parent / "archive.db")
"""Where the archive that comes with evo lies: in an installed package, in a checkout."""

archive_option = click.option(
    "--archive", type=click.Path(path_type=Path), help=f"Archive to use.  [default: {WORKING_ARCHIVE}]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


def open_for_reading(path: Path | None, ref: str | None = None) -> Archive:
    """Open the archive a reader names, else that of the experiment it names, else the working archive.

    Without any of them the archive that comes with evo is read. Says so on stderr where it is not the working one.

    Args:
        path: of `--archive`.
        ref: what the reader wants to see. Where it names an experiment file that lies here ("mine.toml", "mine",
            "mine-7f3a/42"), the file's `[archive] path` is used.

    Raises:
        ArchiveError: missing, not an archive, newer than this evo.
    """
    from evo.archive import Archive

    if path is None and ref is not None:
        path = _archive_of_experiment(ref)
        if path is not None and path != WORKING_ARCHIVE:
            click.echo(f"evo: reading {path}, the archive of that experiment", err=True)
    if path is None and not WORKING_ARCHIVE.exists():
        for shipped in SHIPPED_ARCHIVES:
            if shipped.is_file():
                click.echo(f"evo: no {WORKING_ARCHIVE} here; reading the archive that comes with evo", err=True)
                path = shipped
                break
    opened = Archive.open(path or WORKING_ARCHIVE, readonly=True)
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[READ_FROM] = opened.path
    return opened


def named(archive: Archive, ref: str) -> Found:
    """What a REF names; says on stderr which later runs a REF without an id passed over.

    Raises:
        RefError: as `evo.lineage.resolve`.
    """
    from evo.lineage import Lineage, resolve

    found = resolve(archive, ref)
    for run_id in found.passed_over:
        click.echo(f"evo: {Lineage(archive, run_id).lack()}; passed over", err=True)
    return found


def writable_archive(path: Path | None, *, must_exist: bool = False) -> Archive:
    """Open an archive to change it; made where missing unless it `must_exist`.

    Raises:
        ArchiveError: as `Archive.open`; or missing.
    """
    from evo.archive import Archive

    chosen = path or WORKING_ARCHIVE
    if must_exist:
        Archive.open(chosen, readonly=True).close()
    return Archive.open(chosen)


def shipped_archive() -> Path:
    """The library of experience of the checkout evo runs from.

    Raises:
        EvoError: evo runs from an installed package, whose files are nobody's to change.
    """
    from evo.errors import EvoError

    if not (_PACKAGE.parent / "pyproject.toml").is_file():
        raise EvoError("an installed evo does not change its own files", "name a library of yours with --to")
    return SHIPPED_ARCHIVES[1]


def _archive_of_experiment(ref: str) -> Path | None:
    """`[archive] path` of the experiment file that a REF names, None where there is no such file or key."""
    run = ref.partition("/")[0]
    for name in (ref, f"{run}.toml", f"{run.rpartition('-')[0]}.toml"):
        file = Path(name)
        if file.suffix == ".toml" and file.is_file():
            section = tomllib.loads(file.read_text(encoding="utf-8")).get("archive", {})
            return Path(section["path"]) if "path" in section else None
    return None
