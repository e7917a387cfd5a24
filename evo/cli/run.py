"""`evo run`, also `python -m evo.run`: the main job. Options only; `jobs.py` does the work."""

from __future__ import annotations

from pathlib import Path

import click

from evo.cli.boundary import Command
from evo.cli.options import archive_option, json_option


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("experiments", nargs=-1, metavar="EXPERIMENT...")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change one key of the file: search.children=8."
)
@click.option("--no-llm", is_flag=True, help="Use the built-in operators only, whatever the environment offers.")
@click.option("--model", metavar="NAME", help="The only language model to ask, whatever the experiment names.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on where RUN was broken off.  [default: the latest unfinished run; of several experiments: the command]",
)
@click.option("--note", "notes", multiple=True, metavar="TEXT", help="With --resume: tell the models something.")
@click.option("--replay", metavar="RUN", help="Repeat a run with its recorded answers; no key, no network.")
@click.option("--dry-run", is_flag=True, help="Judge seeds and baseline, show headroom and planned cost, then stop.")
@archive_option
@click.option("--workers", type=click.IntRange(1, 1024), help="Worker processes.  [default: one per CPU]")
@json_option
@click.option("--quiet", "-q", is_flag=True, help="No progress; only the result.")
@click.pass_context
def run(
    ctx: click.Context,
    experiments: tuple[str, ...],
    settings: tuple[str, ...],
    no_llm: bool,
    model: str | None,
    resume: str | None,
    notes: tuple[str, ...],
    replay: str | None,
    dry_run: bool,
    archive: Path | None,
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Evolve kernels for the task of each EXPERIMENT file.

    EXPERIMENT is a path, or the name of an experiment that comes with evo (nm24, smoke). Several share the budget
    of the first, and verdicts where their tasks are equal. Results go to the archive and to runs/<name>-<id>/. Exit
    code: 0 when a valid kernel was found, 1 on an error or without one, 3 when it paused to ask a person, 130 when
    interrupted.
    """
    from fitness.threads import one_thread

    one_thread()
    from evo.cli.jobs import Options, run_all

    resuming = resume is not None
    if resume and (not experiments or resume.endswith(".toml")):  # --resume EXPERIMENT: no run, but what is to run
        experiments, resume = (resume, *experiments), ""
    if not experiments:
        raise click.MissingParameter(ctx=ctx, param_type="argument", param_hint="EXPERIMENT...")
    if resume and len(experiments) > 1:
        raise click.UsageError("--resume RUN goes with the one experiment of that run")
    if notes and not resuming:
        raise click.UsageError("--note goes with --resume")
    if dry_run and resuming:
        raise click.UsageError("--dry-run plans a new run: no --resume")
    if replay is not None and (resuming or no_llm or model is not None or dry_run or len(experiments) > 1):
        raise click.UsageError("--replay repeats one experiment as it was: no --resume, --no-llm, --model or --dry-run")
    options = Options(
        settings,
        no_llm,
        resume or resuming,
        dry_run,
        archive,
        workers,
        as_json,
        quiet,
        model=model,
        notes=notes,
        replay=replay,
    )
    ctx.exit(run_all(experiments, options))
