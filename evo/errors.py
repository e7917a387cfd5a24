"""Errors a person can act on: what went wrong and how to fix it, in one line each.

The command line prints `str(error)` and exits; everything else that escapes is a bug of evo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class EvoError(Exception):
    """Base of every error meant for the user.

    Attributes:
        message: what is wrong, one line.
        fix: what to do about it, one line; may be empty.
    """

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message, fix)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        """One line: the message, then the fix."""
        text = f"{self.message}; {self.fix}" if self.fix else self.message
        return " ".join(text.split())


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an experiment file.

    Attributes:
        path: dotted path of the key ("task.shapes[0].K").
        reason: why the value is refused.
        fix: nearest valid spelling or range; may be empty.
    """

    path: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        """`path: reason; fix` on one line."""
        text = f"{self.path}: {self.reason}" if self.path else self.reason
        return f"{text}; {self.fix}" if self.fix else text


class ExperimentError(EvoError):
    """An experiment file that cannot be used: every problem of it, at once.

    Attributes:
        where: file name, or "experiment".
        problems: all problems, in the order of the file's sections.
    """

    def __init__(self, where: str, problems: Sequence[Problem]) -> None:
        self.where = where
        self.problems = tuple(problems)
        super().__init__(f"{where}: " + " | ".join(str(problem) for problem in self.problems))

    @property
    def lines(self) -> tuple[str, ...]:
        """One line per problem, each with the file name, for printing one under the other."""
        return tuple(f"{self.where}: {problem}" for problem in self.problems)


class ArchiveError(EvoError):
    """The archive cannot be read or written (not SQLite, newer version, read-only, full disk, locked)."""


class ResumeError(EvoError):
    """A run cannot be resumed (none unfinished, changed experiment, still running elsewhere)."""


class SeedError(EvoError):
    """No usable starting kernels, or a seed file that cannot be read."""


class BaselineError(EvoError):
    """The baseline kernel could not be judged, so no speedup would mean anything."""


class RefError(EvoError):
    """A REF ("best", "42", "nm24-7f3a/42", "nm24-7f3a") that names nothing in the archive."""
