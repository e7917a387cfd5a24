"""`evo new`: write an experiment file to start from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.errors import EvoError
from evo.writing import whole, writing

_TEMPLATE = Path(__file__).with_name("template.toml")


@click.command(cls=Command)
@click.argument("name")
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
def new(name: str, force: bool) -> None:
    """Write NAME.toml: a complete experiment with every choice explained. Asks nothing.

    NAME may be a path; the file's stem names the experiment.
    """
    from evo.experiment import Experiment

    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    template = _TEMPLATE.read_text(encoding="utf-8")
    Experiment.from_dict(tomllib.loads(template) | {"name": path.stem}, where=str(path))  # refuses a bad name
    if path.exists() and not force:
        raise EvoError(f"{path} is already there", "choose another name, or overwrite it with --force")
    with writing(path, "choose a place you may write to"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as unfinished:
            unfinished.write_text(template.replace("NAME", path.stem), encoding="utf-8")
    click.echo(f"wrote {path}")
    click.echo(f"next: evo run {path} --dry-run    (shapes, seeds, baseline and headroom; spends nothing)")
    click.echo(f"      evo run {path}")
