"""`evo inject`: add a kernel of one's own to a run."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import archive_option, writable_archive
from evo.words import plain


@click.command(cls=Command)
@click.argument("run_id", metavar="RUN")
@click.argument("kernel", type=click.Path(path_type=Path))
@click.option("--why", default="", metavar="TEXT", help="Kept as the reason, and shown in the lineage.")
@archive_option
def inject(run_id: str, kernel: Path, why: str, archive: Path | None) -> None:
    """Add KERNEL, a .cu file, to RUN. It joins the next generation.

    The run may be under way right now. One that has ended takes it when it is resumed; raise search.generations if it
    is finished.
    """
    from evo.errors import EvoError
    from evo.experiment import Experiment
    from evo.injecting import queue
    from evo.lineage import resolve
    from fitness.kernel import load_kernel

    if not kernel.is_file():
        raise EvoError(f"{kernel} is no file", "give the path of a kernel file (docs/kernel-file.md)")
    with writable_archive(archive, must_exist=True) as opened:
        run = resolve(opened, run_id, latest=True).run
        task = Experiment.from_dict(run.experiment, where=f"experiment of run {run.id}").checked_task
        queue(opened, run.id, task, load_kernel(kernel), kernel.name, why)
    if run.status == "running":
        click.echo(f"{kernel.name} joins the next generation of {run.id}")
    else:
        more = " --set search.generations=N" if run.status == "finished" else ""
        where = f" --archive {archive}" if archive is not None else ""
        again = f"evo run {run.name} --resume {run.id}{more}{where}"
        click.echo(plain(f"{kernel.name} waits; it joins {run.id} with: {again}"))
