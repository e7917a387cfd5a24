"""Options that several commands share, and the archive they read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from evo.archive import Archive

WORKING_ARCHIVE = Path("runs/archive.db")
"""Where runs are archived unless the experiment or --archive says otherwise; relative to the current folder."""

archive_option = click.option(
    "--archive", type=click.Path(path_type=Path), help=f"Archive to use.  [default: {WORKING_ARCHIVE}]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")


def open_for_reading(path: Path | None) -> Archive:
    """Open the archive a reader names, else the working archive.

    Raises:
        ArchiveError: missing, not an archive, newer than this evo.
    """
    from evo.archive import Archive

    return Archive.open(path or WORKING_ARCHIVE, readonly=True)
