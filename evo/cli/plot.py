"""`evo plot`: speedup over generations, for a paper."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import SHIPPED_ARCHIVES, WORKING_ARCHIVE, archive_option, json_option, open_for_reading

_FORMATS = ("png", "pdf", "svg")


def _file_name(_context: click.Context, _option: click.Parameter, name: str) -> str:
    if name in ("", ".", "..") or Path(name).name != name:
        raise click.BadParameter(f"{name!r} is not a file name; say the folder with --out")
    return name


@click.command(cls=Command)
@click.argument("ref", default="best")
@archive_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write to.  [default: the run's folder]")
@click.option(
    "--name", default="plot", show_default=True, callback=_file_name, help="File name without its ending; not a path."
)
@click.option(
    "--format", "formats", type=click.Choice(_FORMATS), multiple=True, help="May be repeated.  [default: all]"
)
@json_option
def plot(ref: str, archive: Path | None, out: Path | None, name: str, formats: tuple[str, ...], as_json: bool) -> None:
    """Plot the run that REF names: speedup over generations, one column wide.

    Writes PNG, PDF and SVG, and the numbers beside them as CSV. REF is `best`, a run (`nm24-7f3a`), the name of
    an experiment (its latest run), or a candidate of the run.
    """
    import json

    from evo.lineage import resolve
    from evo.plots import save
    from evo.report.folder import run_folder
    from evo.report.history import history_of

    with open_for_reading(archive) as opened:
        found = resolve(opened, ref)
        beside = WORKING_ARCHIVE if opened.path in SHIPPED_ARCHIVES else opened.path
        folder = out or run_folder(beside, found.run.id)
        written = save(history_of(opened, found.run), folder, name, formats or _FORMATS)
    if as_json:
        click.echo(json.dumps({"run": found.run.id, "files": [str(path) for path in written]}))
    else:
        for path in written:
            click.echo(path)
