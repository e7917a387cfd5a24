"""`evo evaluate`: the full verdict on one kernel, on the simulator or on the card."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import json_option

DEPTHS = ("compile", "small_run", "correctness", "timing", "confirmation")


@click.command(cls=Command)
@click.argument("kernel", type=click.Path(path_type=Path), metavar="KERNEL")
@click.option("--task", "experiment", default="nm24", show_default=True, help="Experiment whose task it is judged by.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one key of the experiment.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a param of the kernel.")
@click.option("--depth", type=click.Choice(DEPTHS), default="timing", show_default=True, help="Last gate to run.")
@click.option("--full", is_flag=True, help="The full correctness lists, as for seeds.")
@click.option("--profile", is_flag=True, help="Counters and limiter: the simulator's, or Nsight Compute's.")
@click.option("--sanitize", is_flag=True, help="Bounds, races, barriers: the simulator, or compute-sanitizer.")
@json_option
@click.pass_context
def evaluate(
    ctx: click.Context,
    kernel: Path,
    experiment: str,
    settings: tuple[str, ...],
    params: tuple[str, ...],
    depth: str,
    full: bool,
    profile: bool,
    sanitize: bool,
    as_json: bool,
) -> None:
    """Judge one KERNEL file by all gates and say what was found.

    The device is the experiment's (`--set device.kind=simulator`); flags mean the same on both. Exit code: 0 for a
    valid kernel, 1 otherwise.
    """
    from evo.cli.verdicts import Asked, evaluate_kernel

    asked = Asked(kernel, experiment, settings, params, depth, full, profile, sanitize, as_json)
    ctx.exit(evaluate_kernel(asked))
