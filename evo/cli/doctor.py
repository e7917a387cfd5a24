"""`evo doctor`: what this machine can do."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from evo.cli.boundary import Command
from evo.cli.options import json_option


@click.command(cls=Command)
@click.option("--llm", is_flag=True, help="Ask the model endpoint, too; sends no prompt.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, llm: bool, as_json: bool) -> None:
    """Say what this machine can do, what else it could and how to get that.

    Exit code: 1 only where something is broken that evo cannot do without.
    """
    from evo.doctor import examine

    checks = examine(llm=llm)
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        for check in checks:
            click.echo(f"{'-' if check.state == 'absent' else check.state:<8} {check.name:<18} {check.said}")
            if check.fix:
                click.echo(f"{'':<8} {'':<18} -> {check.fix}")
    ctx.exit(1 if any(check.needed and check.state != "ok" for check in checks) else 0)
