"""`evo archive`: look after archive files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from evo.cli.boundary import Group
from evo.cli.options import (
    WORKING_ARCHIVE,
    archive_option,
    json_option,
    named,
    open_for_reading,
    shipped_archive,
    writable_archive,
)
from evo.words import counted, plain

_LISTED = 20


@click.group(cls=Group)
def archive() -> None:
    """Look after archives: what is in one, is it sound, merge several, hand verified runs on.

    The tables are described in docs/archive.md.
    """


@archive.command()
@archive_option
@json_option
def info(archive: Path | None, as_json: bool) -> None:
    """Say what an archive holds: version, size, rows, runs."""
    import json

    from evo.archive import keeping

    with open_for_reading(archive) as opened:
        found = keeping.info(opened, None if as_json else _LISTED)
        path = opened.path
    if as_json:
        click.echo(json.dumps({"path": str(path), **asdict(found), "datasette": str(keeping.DATASETTE)}, indent=2))
        return
    click.echo(f"{path}: archive version {found.version}, {found.size_bytes / 1e6:.1f} MB")
    click.echo(", ".join(counted(count, name.replace("_", " ")) for name, count in found.rows.items()))
    for run in found.runs:
        candidates = counted(run.candidates, "candidates")
        speedup = f"{run.speedup:.2f}x {run.clock}" if run.speedup is not None else "nothing valid"
        click.echo(
            plain(
                f"{run.id:<16} {run.status:<11} {run.started_at[:16]}  {run.gpu:<6} {candidates:>17}, "
                f"{run.valid} valid, {run.confirmed} confirmed; best {speedup}"
            )
        )
    if found.rows["runs"] > len(found.runs):
        click.echo(f"... and {counted(found.rows['runs'] - len(found.runs), 'earlier runs')} (--json lists all)")
    click.echo(f"look inside: datasette {path} --metadata {keeping.DATASETTE}")


@archive.command()
@archive_option
@json_option
@click.pass_context
def check(ctx: click.Context, archive: Path | None, as_json: bool) -> None:
    """Check that an archive is sound. Exit code 1 and one line per problem if it is not."""
    import json

    from evo.archive import keeping

    with open_for_reading(archive) as opened:
        problems = list(keeping.check(opened))
        path = opened.path
    if as_json:
        click.echo(json.dumps({"path": str(path), "problems": problems}, indent=2))
    else:
        for problem in problems:
            click.echo(plain(problem))
        click.echo(f"{path}: {counted(len(problems), 'problems')}" if problems else f"{path} is sound")
    ctx.exit(1 if problems else 0)


@archive.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="ARCHIVE...")
@archive_option
@json_option
def merge(sources: tuple[Path, ...], archive: Path | None, as_json: bool) -> None:
    """Add the runs of other ARCHIVEs to this one, without loss and without duplicates.

    Merging the same archive again changes nothing. A run that goes on elsewhere is extended; two runs of one
    id are kept apart under fresh ids. The others are only read.
    """
    import json

    from evo.archive import Archive
    from evo.archive.merging import merge_file

    results = []
    for source in sources:  # before a file is made for what cannot be read
        Archive.open(source, readonly=True).close()
    for source in sources:
        merged = merge_file(archive or WORKING_ARCHIVE, source)
        results.append({"source": str(source), **asdict(merged)})
        if not as_json:
            click.echo(
                f"{source}: {counted(len(merged.added), 'runs')} added, {len(merged.extended)} extended, "
                f"{len(merged.same)} there already; {counted(merged.candidates, 'candidates')} added"
            )
            for old, new in merged.renamed.items():
                click.echo(plain(f"  {old} is {new} here"))
    if as_json:
        click.echo(json.dumps(results, indent=2))


@archive.command()
@click.argument("refs", nargs=-1, required=True, metavar="REF...")
@archive_option
@click.option(
    "--to", type=click.Path(path_type=Path), help="Library to add to.  [default: the one that comes with evo]"
)
@json_option
def promote(refs: tuple[str, ...], archive: Path | None, to: Path | None, as_json: bool) -> None:
    """Add verified runs to the library of experience that comes with evo.

    Every run that a REF names must have a confirmed candidate. The library stays one small file that can be read
    from a read-only folder.
    """
    import json

    from evo.archive import keeping

    target = to or shipped_archive()
    with open_for_reading(archive, refs[0]) as opened:
        ids = list(dict.fromkeys(named(opened, ref).run.id for ref in refs))
        merged = keeping.promote(opened, ids, target)
    size = target.stat().st_size
    if as_json:
        click.echo(json.dumps({"library": str(target), "size_bytes": size, **asdict(merged)}, indent=2))
    else:
        click.echo(
            f"{target}: {counted(len(merged.added), 'runs')} added, {len(merged.extended)} extended, "
            f"{len(merged.same)} there already; {size / 1e6:.1f} MB"
        )


@archive.command()
@archive_option
@json_option
def vacuum(archive: Path | None, as_json: bool) -> None:
    """Make an archive file as small as its content."""
    import json

    from evo.archive import keeping

    with writable_archive(archive, must_exist=True) as opened:
        before, after = keeping.vacuum(opened)
        path = opened.path
    if as_json:
        click.echo(json.dumps({"path": str(path), "before_bytes": before, "after_bytes": after}))
    else:
        click.echo(f"{path}: {before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")


@archive.command()
@click.argument("refs", nargs=-1, metavar="[REF...]")
@archive_option
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("export"), show_default=True, help="Folder to write."
)
@click.option("--format", "kind", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option("--sources/--no-sources", "with_sources", default=True, show_default=True, help="Write the kernel files.")
@click.option("--force", is_flag=True, help="Write into a folder that has files, over those of the same names.")
@json_option
def export(
    refs: tuple[str, ...], archive: Path | None, out: Path, kind: str, with_sources: bool, force: bool, as_json: bool
) -> None:
    """Write runs as plain files: runs, candidates, timings and events, and every source once.

    Without a REF all runs are written. `candidates` names the source of each: sources/<source_id>.cu.
    """
    import json

    from evo.cli.exporting import export_tables
    from evo.errors import EvoError
    from evo.writing import writing

    with writing(out):
        filled = out.is_dir() and any(out.iterdir())
    if filled and not force:
        raise EvoError(f"{out} is not empty", "name another folder with --out, or write into it with --force")

    with open_for_reading(archive, refs[0] if refs else None) as opened:
        ids = [named(opened, ref).run.id for ref in refs] or [run.id for run in opened.runs()]
        with writing(out):
            counts = export_tables(opened, list(dict.fromkeys(ids)), out, kind, with_sources=with_sources)
    if as_json:
        click.echo(json.dumps({"folder": str(out), "rows": counts}))
    else:
        click.echo(f"{out}: " + ", ".join(counted(count, name) for name, count in counts.items()))


@archive.command()
@click.argument("words", nargs=-1, required=True, metavar="WORDS...")
@archive_option
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="So many matches at most.")
@json_option
def find(words: tuple[str, ...], archive: Path | None, limit: int, as_json: bool) -> None:
    """Find candidates by the words of their reason or source; all WORDS must be there."""
    import json

    with open_for_reading(archive) as opened:
        found = opened.find(" ".join(words), limit)
        there = opened.count_found(" ".join(words)) if len(found) == limit else len(found)
    if as_json:
        click.echo(json.dumps([{"run": run, "n": n, "reason": reason} for run, n, reason in found], indent=2))
    for run, n, reason in found if not as_json else ():
        click.echo(plain(f"{run}/{n}  {reason}"))
    if there > len(found):
        click.echo(f"evo: {len(found):,} of {there:,}; --limit shows more", err=True)
    if not found and not as_json:
        click.echo("nothing found")
