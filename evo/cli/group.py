"""The `evo` command: a group that imports a subcommand only when it is asked for.

`evo --help` must be quick, so the one-line help of every subcommand stands here and its module, with
all it needs, is imported when the subcommand runs.
"""

from __future__ import annotations

import importlib

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("evo.cli.run:run", "Evolve kernels for the task of an experiment file."),
    "lineage": ("evo.cli.lineage:lineage", "Show how a kernel came about, from its seed on."),
    "plot": ("evo.cli.plot:plot", "Plot runs: speedup, roofline, Pareto front ... (PNG, PDF, SVG, CSV)."),
    "report": ("evo.cli.report:report", "Write a run as one HTML file to explore."),
    "watch": ("evo.cli.watch:watch", "Watch a run in the terminal, or as a report that updates itself."),
    "archive": ("evo.cli.archive:archive", "Look after archives: check, merge, search, export, ..."),
    "inject": ("evo.cli.inject:inject", "Add a kernel of one's own to a run."),
    "new": ("evo.cli.new:new", "Write a new experiment file to start from."),
    "analyze": ("evo.cli.analyze:analyze", "Analyse matrices and models; write experiment files for them."),
    "evaluate": ("evo.cli.evaluate:evaluate", "Judge one kernel: verdict, times, profile, sanitizers."),
    "doctor": ("evo.cli.doctor:doctor", "Say what this machine can do, and what else it could."),
}
"""Subcommand -> ("module:attribute", one-line help)."""


class LazyGroup(click.Group):
    """A group whose subcommands are named in `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of a first use, not of the alphabet."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; None if there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """As runs record it; click's own option fails in a checkout that is not installed."""
    if wanted and not ctx.resilient_parsing:
        from evo.provenance import version

        click.echo(f"evo, version {version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def cli() -> None:
    """Evolutionary search over populations of CUDA kernels.

    Start with `evo run nm24`: it needs no GPU and no model.
    """
