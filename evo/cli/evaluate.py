"""`evo evaluate`: the full verdict on one kernel, on the simulator or on the card."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import json_option

DEPTHS = ("compile", "small_run", "correctness", "timing", "confirmation")


@click.command(cls=Command)
@click.argument("kernel", type=click.Path(path_type=Path), metavar="KERNEL")
@click.argument("words", nargs=-1, metavar="[EXPERIMENT] [thread=X,Y,Z] [block=X,Y,Z]")
@click.option("--task", help="The same as EXPERIMENT: whose task it is judged by.  [default: nm24]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one key of the experiment.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Set a param of the kernel.")
@click.option("--depth", type=click.Choice(DEPTHS), default="timing", show_default=True, help="Last gate to run.")
@click.option("--full", is_flag=True, help="The full correctness lists, as for seeds.")
@click.option("--profile", is_flag=True, help="Counters and limiter: the simulator's, or Nsight Compute's.")
@click.option("--sanitize", is_flag=True, help="Bounds, races, barriers: the simulator, or compute-sanitizer.")
@click.option(
    "--end-to-end", is_flag=True, help="What a call costs besides the kernel: packing, launch, copies; on a card."
)
@click.option("--trace", metavar="line=N", help="Values and addresses of one thread at line N, always simulated.")
@json_option
@click.pass_context
def evaluate(
    ctx: click.Context,
    kernel: Path,
    words: tuple[str, ...],
    task: str | None,
    settings: tuple[str, ...],
    params: tuple[str, ...],
    depth: str,
    full: bool,
    profile: bool,
    sanitize: bool,
    end_to_end: bool,
    trace: str | None,
    as_json: bool,
) -> None:
    """Judge one KERNEL (a file, or a seed by name: spmm/nm24_mma_sp) by all gates of EXPERIMENT and say what was found.

    The device is the experiment's (`--set device.kind=simulator`); flags mean the same on both. `--trace line=57
    thread=0,0,0 block=1,0,0` shows, instruction by instruction, what that thread reads, computes and addresses at
    line 57, at the first small shape of the task (`N=8` and the like change it). Exit code: 0 for a valid kernel, 1
    otherwise.
    """
    from evo.cli.verdicts import Asked, evaluate_kernel

    names, where = [word for word in words if "=" not in word], tuple(word for word in words if "=" in word)
    if len(names) + (task is not None) > 1:
        raise click.UsageError(f"{names[-1]}: one kernel and one experiment, please")
    if where and trace is None:
        raise click.UsageError(f"{where[0]}: only --trace takes further words")
    experiment = names[0] if names else task or "nm24"
    points = () if trace is None else (trace, *where)
    asked = Asked(kernel, experiment, settings, params, depth, full, profile, sanitize, end_to_end, points, as_json)
    ctx.exit(evaluate_kernel(asked))
