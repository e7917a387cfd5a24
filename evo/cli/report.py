"""`evo report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import SHIPPED_ARCHIVES, WORKING_ARCHIVE, archive_option, json_option, named, open_for_reading

SHOWN = 5000


@click.command(cls=Command)
@click.argument("ref", default="best")
@archive_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write.  [default: report.html in the run's folder]",
)
@click.option(
    "--limit", type=click.IntRange(10, 100_000), default=SHOWN, show_default=True, help="Candidates to show at most."
)
@json_option
def report(ref: str, archive: Path | None, out: Path | None, limit: int, as_json: bool) -> None:
    """Write the run that REF names as one HTML file.

    Result, plots, lineage to explore, operators, costs, failures, environment, and the experiment that reproduces
    it. The file needs no network; its tables need no JavaScript. REF is as for `evo lineage`.
    """
    import json

    from evo.report.folder import run_folder
    from evo.report.page import page
    from evo.writing import whole, writing

    with open_for_reading(archive, ref) as opened:
        found = named(opened, ref)
        beside = WORKING_ARCHIVE if opened.path in SHIPPED_ARCHIVES else opened.path
        path = out or run_folder(beside, found.run.id) / "report.html"
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            text = page(opened, found.run, limit=limit)
            with whole(path) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
    if as_json:
        click.echo(json.dumps({"run": found.run.id, "file": str(path), "bytes": len(text.encode())}))
    else:
        click.echo(path)
