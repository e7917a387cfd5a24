"""Where errors end: every mistake a user can make becomes one clear line and an exit code.

Exit codes: 0 done, 1 an error with one line on stderr, 2 wrong usage of a command, 3 paused to ask a person,
130 interrupted.
A traceback is only ever a bug of evo; with EVO_TRACEBACK=1 in the environment the others show theirs too.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import traceback
from typing import Any

import click

from evo.errors import EvoError, ExperimentError
from evo.words import plain
from evo.writing import why

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""

TRACEBACK = "EVO_TRACEBACK"
"""Variable of the environment: where it is set, an error that ends in one line shows its traceback before it."""

PAUSED = 3
"""Exit code of a run that waits for a person."""

_DISK = {
    errno.ENOSPC: ("the disk is full", "free some space; what is archived so far is kept"),
    errno.EDQUOT: ("the disk quota is used up", "free some space; what is archived so far is kept"),
    errno.EROFS: ("the folder is read-only", "run in a folder you may write to"),
    errno.EACCES: ("permission denied", "run in a folder you may write to"),
    errno.EPERM: ("permission denied", "run in a folder you may write to"),
    errno.ENOENT: ("no such file or folder", "check the path"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "check the path"),
    errno.EEXIST: ("is a file, not a folder", "choose another path"),
    errno.EISDIR: ("is a folder", "give the path of a file"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
}

_BUGS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)
"""What code raises that is wrong, or that was given something no archive of ours holds."""

READ_FROM = "evo.archive"
"""Key of a context's `meta`: the archive that the command reads."""

_UNKNOWN = f"the system says so; {TRACEBACK}=1 in the environment shows where"

_WRITTEN_FOR_USERS = {
    "evo.pool:PoolError",
    "fitness.compiler.cache:CacheError",
    "fitness.devices.cuda.tools:ToolError",
    "fitness.compiler.nvrtc:NvrtcError",
    "fitness.gpu:GpuError",
    "fitness.header:KernelError",
    "fitness.matrices.error:MatrixError",
    "fitness.patterns.pattern:PatternError",
    "fitness.task:TaskError",
}


class UserError(click.ClickException):
    """Lines for the user, written to stderr as they are; exit code 1."""

    def show(self, file: Any = None) -> None:
        """Write `evo: <line>` for each line of the message."""
        for line in self.message.splitlines():
            click.echo(f"evo: {plain(line)}", file=file, err=file is None)


class Command(click.Command):
    """A click command that ends the errors a user can cause in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn expected errors into `UserError`."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):  # click's own ways to end; they are RuntimeErrors
            raise
        except KeyboardInterrupt:
            click.echo("evo: interrupted; what was judged is in the archive", err=True)
            ctx.exit(INTERRUPTED)
        except (EvoError, OSError, RuntimeError, MemoryError, sqlite3.Error, *_BUGS) as error:
            text = explain(error) or _blame_archive(ctx)
            if text is None:
                raise
            if os.environ.get(TRACEBACK):
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            raise UserError(text) from error


class Group(click.Group):
    """A command with subcommands, each of which is a `Command`."""

    command_class = Command


def explain(error: Exception) -> str | None:
    """The lines to show for `error`, or None where it is a bug that needs its traceback."""
    if isinstance(error, ExperimentError):
        return "\n".join(error.lines)
    if isinstance(error, EvoError) or _speaks_for_itself(error):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory; close other programs, or do it in smaller parts"
    if isinstance(error, BrokenPipeError):  # of a pager that was closed: click ends quietly
        return None
    if isinstance(error, OSError):
        what, fix = _DISK.get(error.errno or 0, (why(error), _UNKNOWN))
        where = f"{error.filename}: " if error.filename is not None else ""
        return " ".join(f"{where}{what}; {fix}".split())
    if isinstance(error, sqlite3.OperationalError) and "full" in str(error):
        what, fix = _DISK[errno.ENOSPC]
        return f"archive: {what}; {fix}"
    return None


def _blame_archive(ctx: click.Context) -> str | None:
    """Whether the archive that was read is damaged, in a line that says how; None where it is sound: then we are."""
    path = ctx.meta.get(READ_FROM)
    if path is None:
        return None
    from evo.archive import Archive, keeping

    try:
        with Archive.open(path, readonly=True) as archive:
            problem = next(keeping.check(archive), None)
    except EvoError as error:
        return str(error)
    if problem is None:
        return None
    return f"archive {path} is damaged ({problem}); restore a copy; evo archive check lists all that is wrong"


def _speaks_for_itself(error: Exception) -> bool:
    """True for the errors of `fitness` and the pool that are written for the user. Imports nothing."""
    return any(f"{kind.__module__}:{kind.__name__}" in _WRITTEN_FOR_USERS for kind in type(error).__mro__)
