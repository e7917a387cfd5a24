"""`evo watch`: a run that another process works on."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import archive_option, open_for_reading
from evo.words import plain


@click.command(cls=Command)
@click.argument("ref", default="best")
@archive_option
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Say how it stands now and stop.")
@click.option(
    "--serve", "port", type=click.IntRange(0, 65535), help="Serve the updating report on 127.0.0.1:PORT; 0: any."
)
def watch(ref: str, archive: Path | None, interval: float, once: bool, port: int | None) -> None:
    """Watch the run that REF names while another process works on it.

    Ends when the run ends, or with Ctrl-C; the run goes on. REF is as for `evo lineage`, but without a run's id it
    means the latest run, whatever came of it.
    """
    from rich.console import Console

    from evo.lineage import Lineage, resolve
    from evo.watching import Server, follow, lines

    with open_for_reading(archive, ref) as opened:
        run = resolve(opened, ref, latest=True).run
        Lineage(opened, run)
        console = Console(highlight=False)
        if port is not None and not once:
            server = Server(Path(opened.path), run.id, port)
            click.echo(f"{run.id}: {server.url} until the run ends or Ctrl-C")
            server.run(interval)
        for text in [lines(opened, run.id)] if once or port is not None else follow(opened, run.id, interval):
            if console.is_terminal and not once:
                console.rule(style="dim")
            for line in text:
                console.print(plain(line), markup=False, soft_wrap=True)
