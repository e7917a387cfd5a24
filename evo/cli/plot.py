"""`evo plot`: plots of runs, for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evo.cli.boundary import Command
from evo.cli.options import SHIPPED_ARCHIVES, WORKING_ARCHIVE, archive_option, json_option, named, open_for_reading
from evo.errors import EvoError
from evo.words import plain

if TYPE_CHECKING:
    from evo.archive import Archive, RunRecord

_FORMATS = ("png", "pdf", "svg")
KINDS = {
    "speedup": "speedup over generations: best, median, quartiles, seeds; of several runs the best, with bands",
    "evaluations": "best so far against evaluations",
    "seconds": "best so far against seconds",
    "dollars": "best so far against dollars spent on models",
    "roofline": "rate of every candidate under the card's ceilings",
    "pareto": "times at two shapes, and the candidates no other beats in both",
    "validity": "what became of each generation's candidates, by gate",
    "credit": "which operator improved the best, over time",
    "shapes": "speedup per shape against each baseline, with intervals",
    "sweep": "time over size, or over the density of several runs",
    "phylogeny": "the tree of the run",
}
"""Kinds of plots, as `evo.report.series.KINDS` makes them; here so that help needs no import."""


def _file_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is not None and (name in ("", ".", "..") or Path(name).name != name):
        raise click.BadParameter(f"{name!r} is not a file name; say the folder with --out")
    return name


class _PlotCommand(Command):
    """Lists the kinds below the options."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The kinds, one a line."""
        del ctx
        with formatter.section("Kinds"):
            formatter.write_dl(list(KINDS.items()))


@click.command(cls=_PlotCommand)
@click.argument("refs", nargs=-1, metavar="[REF...]")
@click.option(
    "--kind",
    type=click.Choice([*KINDS, "all"]),
    default="speedup",
    show_default=True,
    metavar="KIND",
    help="See below.",
)
@archive_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder to write to.  [default: the run's folder]")
@click.option("--name", callback=_file_name, help="File name without its ending.  [default: plot, or the kind]")
@click.option(
    "--format", "formats", type=click.Choice(_FORMATS), multiple=True, help="May be repeated.  [default: all]"
)
@json_option
def plot(
    refs: tuple[str, ...],
    kind: str,
    archive: Path | None,
    out: Path | None,
    name: str | None,
    formats: tuple[str, ...],
    as_json: bool,
) -> None:
    """Plot the runs that REFs name, one column wide.

    Writes PNG, PDF and SVG, and the numbers beside them as CSV. REF is as for `evo lineage`: a run
    (`nm24-7f3a`), or `best`, the name or file of an experiment (the latest run that has a valid candidate).
    `--kind all` draws every kind that there are numbers for and says why the others are left out.
    """
    import json

    from evo.report.folder import run_folder
    from evo.writing import writing

    refs = refs or ("best",)
    if kind == "all" and name is not None:
        raise click.UsageError("--name names one plot; --kind all writes several, each under its kind")
    with open_for_reading(archive, refs[0]) as opened:
        runs = list({found.run.id: found.run for found in (named(opened, ref) for ref in refs)}.values())
        beside = WORKING_ARCHIVE if opened.path in SHIPPED_ARCHIVES else opened.path
        folder = out or run_folder(beside, runs[0].id)
        with writing(folder):
            if kind == "all":
                written = _all(opened, runs, folder, formats or _FORMATS)
            else:
                written = _one(
                    opened, runs, kind, folder, name or ("plot" if kind == "speedup" else kind), formats or _FORMATS
                )
    if as_json:
        facts = {"run": runs[0].id} if len(runs) == 1 else {"runs": [run.id for run in runs]}
        click.echo(json.dumps({**facts, "files": [str(path) for path in written]}))
    else:
        for path in written:
            click.echo(path)


def _one(
    archive: Archive, runs: Sequence[RunRecord], kind: str, folder: Path, name: str, formats: Sequence[str]
) -> list[Path]:
    from evo.plots import save
    from evo.report.series import KINDS as MAKERS

    return save(MAKERS[kind].make(archive, runs), folder, name, formats)


def _all(archive: Archive, runs: Sequence[RunRecord], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Every kind, under its own name; a kind without numbers is said and left out."""
    written: list[Path] = []
    for kind in KINDS:
        try:
            written += _one(archive, runs, kind, folder, kind, formats)
        except EvoError as error:
            click.echo(f"evo: no {kind} plot: {plain(str(error))}", err=True)
    return written
