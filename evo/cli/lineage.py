"""`evo lineage`: how a kernel came about."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evo.cli.boundary import Command
from evo.cli.options import archive_option, json_option, named, open_for_reading

if TYPE_CHECKING:
    from evo.archive import Archive

_VIEWS = ("--tree", "--blame", "--stats", "--against")
_FORMATS = ("--dot", "--mermaid", "--json")


@click.command(cls=Command)
@click.argument("ref", default="best")
@archive_option
@click.option("--diff/--no-diff", "with_diff", default=True, show_default=True, help="Show what changed in the source.")
@click.option("--tree", is_flag=True, help="Show the whole tree of the run, or a candidate's relatives.")
@click.option("--against", metavar="REF", help="Show how it differs from a candidate of any run; a number: of its own.")
@click.option("--blame", is_flag=True, help="Show which ancestor introduced each line, and what it gained.")
@click.option("--stats", is_flag=True, help="Show what each operator and each model contributed.")
@click.option("--dot", "as_dot", is_flag=True, help="Print all ancestors (with --tree: the tree) for Graphviz.")
@click.option("--mermaid", "as_mermaid", is_flag=True, help="The same for Mermaid.")
@json_option
def lineage(
    ref: str,
    archive: Path | None,
    with_diff: bool,
    tree: bool,
    against: str | None,
    blame: bool,
    stats: bool,
    as_dot: bool,
    as_mermaid: bool,
    as_json: bool,
) -> None:
    """Show the path from a seed to the kernel that REF names.

    Every step says its operator, the reason, what changed, and the times. REF is a run `nm24-7f3a` (its best) or a
    candidate `nm24-7f3a/42`; without a run's id it means the latest run that has a valid candidate: `best`, `42`, the
    name or file of an experiment. Later runs that are passed over are told.
    """
    chosen = [name for name, given in zip(_VIEWS, (tree, blame, stats, against), strict=True) if given]
    formats = [name for name, given in zip(_FORMATS, (as_dot, as_mermaid, as_json), strict=True) if given]
    for names, what in ((chosen, "views"), (formats, "formats")):
        if len(names) > 1:
            raise click.UsageError(f"{' and '.join(names)} are {len(names)} {what}; choose one")
    if (as_dot or as_mermaid) and chosen not in ([], ["--tree"]):
        raise click.UsageError(f"{formats[0]} draws the ancestors or the tree, not {chosen[0]}")
    with open_for_reading(archive, ref) as opened:
        if as_dot or as_mermaid:
            _draw(opened, ref, tree=tree, mermaid=as_mermaid)
        elif tree:
            _tree(opened, ref, as_json)
        elif stats:
            _stats(opened, ref, as_json)
        elif blame:
            _blame(opened, ref, as_json)
        elif against is not None:
            _against(opened, ref, against, as_json)
        else:
            _path(opened, ref, with_diff, as_json)


def _path(archive: Archive, ref: str, with_diff: bool, as_json: bool) -> None:
    import json

    from evo.cli import genealogy

    story = genealogy.read(archive, ref)
    if as_json:
        click.echo(json.dumps(genealogy.as_json(story), indent=2))
    else:
        click.echo("\n".join(genealogy.as_text(story, with_diff=with_diff)))


def _tree(archive: Archive, ref: str, as_json: bool) -> None:
    from evo.cli import genealogy
    from evo.lineage import Lineage
    from evo.lineage.sketches import outline, sketch_of, sketches

    found = named(archive, ref)
    shown = Lineage(archive, found.run)
    if as_json:
        relatives = () if found.n is None else shown.nodes([place.node.n for place in shown.walk(found.n)])
        _print(genealogy.node_lines(found.run.id, sketches(shown) if found.n is None else map(sketch_of, relatives)))
        return
    best = shown.best()
    _print(genealogy.tree_lines(outline(shown, found.n), best.n if best else None))


def _print(lines: Iterable[str]) -> None:
    """Lines as they come, many to a write: a tree may have a hundred thousand."""
    rest = iter(lines)
    while some := list(itertools.islice(rest, 2000)):
        click.echo("\n".join(some))


def _draw(archive: Archive, ref: str, *, tree: bool, mermaid: bool) -> None:
    from evo.cli import genealogy
    from evo.lineage import Lineage, graphs
    from evo.lineage.sketches import sketch_of, sketches

    if tree:
        found = named(archive, ref)
        shown = Lineage(archive, found.run)
        nodes, path = sketches(shown), tuple(node.n for node in shown.line(found.n)) if found.n is not None else ()
    else:
        story = genealogy.read(archive, ref)
        nodes, path = map(sketch_of, (*story.lineage.ancestors(story.end.n), story.end)), story.numbers
    _print((graphs.as_mermaid if mermaid else graphs.as_dot)(nodes, path, whole=tree))


def _stats(archive: Archive, ref: str, as_json: bool) -> None:
    import json
    from dataclasses import asdict

    from evo.cli import genealogy
    from evo.lineage import all_shares

    run = named(archive, ref).run
    operators, models = all_shares(archive, run.id)
    if as_json:
        facts = {"operators": [asdict(one) for one in operators], "models": [asdict(one) for one in models]}
        click.echo(json.dumps({"run": run.id, "clock": run.clock} | facts, indent=2))
        return
    click.echo(f"{run.id}; gains are ratios of {run.clock} times over the first parent")
    click.echo("\n".join(genealogy.share_lines(operators, "operator")))
    click.echo("\n" + "\n".join(genealogy.share_lines(models, "model")))


def _blame(archive: Archive, ref: str, as_json: bool) -> None:
    import json

    from evo.cli import genealogy
    from evo.lineage import blame

    shown, node = genealogy.node_named(archive, ref)
    found = blame(shown, node.n)
    if as_json:
        click.echo(json.dumps(genealogy.blame_json(found), indent=2))
    else:
        click.echo("\n".join(genealogy.blame_lines(found)))


def _against(archive: Archive, ref: str, other: str, as_json: bool) -> None:
    import json

    from evo.cli import genealogy
    from evo.lineage.genealogy import node_difference

    lineage, new = genealogy.node_named(archive, ref)
    _, old = genealogy.node_named(archive, f"{lineage.run.id}/{other}" if other.isdecimal() else other)
    change = node_difference(old, new)
    if as_json:
        click.echo(json.dumps(genealogy.diff_json(old, new, change), indent=2))
    else:
        click.echo("\n".join(genealogy.diff_lines(old, new, change)))
