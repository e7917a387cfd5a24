"""`evo lineage`: how a kernel came about."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import archive_option, json_option, open_for_reading


@click.command(cls=Command)
@click.argument("ref", default="best")
@archive_option
@click.option("--diff/--no-diff", "with_diff", default=True, show_default=True, help="Show what changed in the source.")
@click.option("--dot", "as_dot", is_flag=True, help="Print all ancestors as a Graphviz graph.")
@json_option
def lineage(ref: str, archive: Path | None, with_diff: bool, as_dot: bool, as_json: bool) -> None:
    """Show the path from a seed to the kernel that REF names.

    Every step says its operator, the reason, what changed, and the times. REF is `best`, a candidate `42` of the latest
    run, `nm24-7f3a/42`, a run `nm24-7f3a` or an experiment's name (their best).
    """
    from evo.cli import genealogy

    if as_dot and as_json:
        raise click.UsageError("--dot and --json are two formats; choose one")
    with open_for_reading(archive) as opened:
        story = genealogy.read(opened, ref)
    if as_json:
        click.echo(genealogy.as_json(story))
    elif as_dot:
        click.echo(genealogy.as_dot(story))
    else:
        click.echo("\n".join(genealogy.as_text(story, with_diff=with_diff)))
