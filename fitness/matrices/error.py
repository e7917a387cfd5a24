"""The one error of the readers: a file that cannot be read as a matrix, and why."""

from __future__ import annotations

from pathlib import Path


class MatrixError(ValueError):
    """A file that holds no matrix evo can use.

    Attributes:
        path: the file; line: 1-based, None where lines mean nothing (binary files) or the whole file is meant.
        reason: what is wrong; fix: what to do about it, may be empty.
    """

    def __init__(self, path: Path | str, reason: str, fix: str = "", line: int | None = None) -> None:
        self.path, self.reason, self.fix, self.line = str(path), reason, fix, line
        super().__init__(str(path), reason, fix, line)

    def __str__(self) -> str:
        """`path:line: reason; fix` on one line."""
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        text = f"{where}: {self.reason}; {self.fix}" if self.fix else f"{where}: {self.reason}"
        return " ".join(text.split())
