"""Options that several commands share, and the archive they read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import evo

if TYPE_CHECKING:
    from evo.archive import Archive

WORKING_ARCHIVE = Path("runs/archive.db")
"""Where runs are archived unless the experiment or --archive says otherwise; relative to the current folder."""

_PACKAGE = Path(evo.__file__).parent
SHIPPED_ARCHIVES = (_PACKAGE / "shipped" / "archive.db", _PACKAGE.parent / "archive.db")
"""Where the archive that comes with evo lies: in an installed package, in a checkout."""

archive_option = click.option(
    "--archive", type=click.Path(path_type=Path), help=f"Archive to use.  [default: {WORKING_ARCHIVE}]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


def open_for_reading(path: Path | None) -> Archive:
    """Open the archive a reader names, else the working archive, else the one that comes with evo.

    Says so on stderr where it is the last.

    Raises:
        ArchiveError: missing, not an archive, newer than this evo.
    """
    from evo.archive import Archive

    if path is None and not WORKING_ARCHIVE.exists():
        for shipped in SHIPPED_ARCHIVES:
            if shipped.is_file():
                click.echo(f"evo: no {WORKING_ARCHIVE} here; reading the archive that comes with evo", err=True)
                return Archive.open(shipped, readonly=True)
    return Archive.open(path or WORKING_ARCHIVE, readonly=True)
