"""`evo analyze`: what a matrix or a model is made of, and whether a sparse kernel can pay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evo.cli.boundary import Command
from evo.cli.options import json_option
from evo.words import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evo.analysis.job import Batch, Refused, Result

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8")
FORMATS = ("png", "pdf", "svg")
_IN_FULL = 3
_WIDEST = 300


def _columns(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    words = value.split(",")
    if not all(word.strip().isdecimal() and 1 <= int(word) <= 2**24 for word in words):
        raise click.BadParameter(f"{value!r} is no list of sizes from 1 to {2**24}; for example 1,16,256")
    return tuple(sorted({int(word) for word in words}))


@click.command(cls=Command)
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@click.option("--layers", multiple=True, metavar="GLOB", help="Only matrices of that name within a file; repeatable.")
@click.option("--gpu", "card", default="H200", show_default=True, help="Card that floors are for.")
@click.option("--dtype", type=click.Choice(DTYPES), help="Type on the card.  [default: the file's, else float32]")
@click.option("--columns", callback=_columns, metavar="N,N,...", help="Columns of X.  [default: 1,8,32,128,512,4096]")
@click.option("--task-out", type=click.Path(path_type=Path), metavar="DIR", help="Write experiment files for evo run.")
@click.option("--picture", type=click.Path(path_type=Path), metavar="DIR", help="Draw density map and row lengths.")
@click.option("--format", "formats", type=click.Choice(FORMATS), multiple=True, help="Of pictures.  [default: png]")
@click.option("--details", is_flag=True, help=f"All there is to say, also of more than {_IN_FULL} matrices.")
@json_option
@click.pass_context
def analyze(
    ctx: click.Context,
    files: tuple[Path, ...],
    layers: tuple[str, ...],
    card: str,
    dtype: str | None,
    columns: tuple[int, ...] | None,
    task_out: Path | None,
    picture: Path | None,
    formats: tuple[str, ...],
    details: bool,
    as_json: bool,
) -> None:
    """Say what the matrices of each FILE are made of, and whether a sparse kernel can pay for them.

    FILE is .mtx, .smtx, .npz (SciPy or NumPy), .npy, .pt, .safetensors or the index of a sharded model, gzipped or not,
    or a folder of them. Models are read one layer at a time. Floors are lower bounds from the card's data sheet.
    Exit code: 1 if a file could not be read, else 0.
    """
    import json

    from evo.analysis.data import as_data
    from evo.analysis.job import Asked, Refused, Result, analyse_all, collect
    from evo.analysis.tasks import MINUTES, write_tasks
    from fitness import gpu as gpus
    from fitness.analysis.floors import COLUMNS

    asked = Asked(gpus.load(card), dtype, columns or COLUMNS, layers)
    batch = collect(files, layers)
    found = list(_with_progress(batch, lambda done: analyse_all(batch, asked, done)))
    results = [item for item in found if isinstance(item, Result)]
    refused = [*batch.refused, *(item for item in found if isinstance(item, Refused))]
    pictures = _draw(results, picture, formats or ("png",)) if picture else []
    written, unwritten = write_tasks(results, task_out) if task_out else ([], [])
    if as_json:
        data: dict[str, Any] = {
            "matrices": [as_data(result) for result in results],
            "refused": [{"file": str(item.path), "reason": item.reason} for item in refused],
            "skipped": [{"name": item.name, "reason": item.reason} for item in batch.skipped],
            "pictures": [str(path) for path in pictures],
            "tasks": [{"file": str(task.path), "matrices": list(task.matrices)} for task in written],
            "no_task": [{"matrices": list(task.matrices), "reason": task.reason} for task in unwritten],
        }
        click.echo(json.dumps(data, indent=2))
    else:
        _print(batch, results, details=details)
        for path in pictures:
            click.echo(f"picture    {path}")
        for task in unwritten:
            click.echo(plain(f"no task    {_titles(task.matrices)}: {task.reason}"))
        for done in written:
            click.echo(plain(f"task       {done.path}: {_titles(done.matrices)}"))
        if written and task_out:
            click.echo(f"next: evo run {written[0].path} --dry-run    (seeds, baseline and headroom; spends nothing)")
            each = "" if len(written) == 1 else f" for all {len(written)}"
            click.echo(f"      evo run {task_out}/*.toml    ({MINUTES} minutes{each}; more: --set budget.minutes=60)")
    for item in refused:
        click.echo(plain(f"evo: {item.reason}"), err=True)
    ctx.exit(1 if refused else 0)


def _titles(matrices: tuple[str, ...]) -> str:
    return matrices[0] if len(matrices) == 1 else f"{matrices[0]} and {len(matrices) - 1} equal to it"


def _with_progress(
    batch: Batch, run: Callable[[Callable[[str, int], None]], Iterator[Result | Refused]]
) -> Iterator[Result | Refused]:
    """Results as they come, with a bar on stderr where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    many = sum(len(source.entries) for source in batch.sources) > 1
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not (many and console.is_terminal)) as bar:
        task = bar.add_task("", total=batch.elements)
        yield from run(lambda title, elements: bar.update(task, advance=elements, description=title))


def _print(batch: Batch, results: list[Result], *, details: bool) -> None:
    from rich.console import Console
    from rich.measure import Measurement

    from evo.analysis.text import as_table, in_full

    console = Console(highlight=False)
    if details or len(results) <= _IN_FULL:
        for i, result in enumerate(results):
            if i:
                console.print()
            for line in in_full(result):
                console.print(line, soft_wrap=True)
    else:
        table = as_table(results)
        # as wide as it must be: a terminal wraps lines better than names broken in a narrow column
        needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
        Console(highlight=False, width=max(console.width, needed)).print(table)
        counts = {
            pays: sum(result.analysis.advice.pays == pays for result in results) for pays in ("yes", "little", "no")
        }
        different = len({result.analysis.repetition.digest for result in results})
        console.print(
            f"{len(results)} matrices with {different} different patterns: sparse can pay on {counts['yes']}, "
            f"hardly on {counts['little']}, not on {counts['no']} (--details says why)",
            soft_wrap=True,
        )
    if batch.skipped:
        skipped = f"skipped    {len(batch.skipped)} tensors that are no matrices of weights (--json lists them)"
        console.print(skipped, soft_wrap=True)


def _draw(results: list[Result], folder: Path, formats: tuple[str, ...]) -> list[Path]:
    from evo.analysis.pictures import picture_names, picture_of
    from evo.plots.picture import save
    from evo.writing import writing

    written: list[Path] = []
    with writing(folder, "say where to draw with --picture"):
        for result, name in zip(results, picture_names(results), strict=True):
            written += save(picture_of(result), folder, name, formats)
    return written
