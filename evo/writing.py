"""Files for people: written whole or not at all; a place that cannot be written is said with what to do about it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from evo.errors import EvoError

_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to. It takes its place when the block ends well, and is gone otherwise.

    Raises:
        OSError: it cannot take its place.
    """
    unfinished = path.with_name(f".{path.name}.new")
    with contextlib.ExitStack() as broken_off:
        broken_off.callback(_remove, unfinished)
        yield unfinished
        unfinished.replace(path)
        broken_off.pop_all()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # what went wrong first is what to tell
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def writing(place: Path, fix: str = "say where to write with --out") -> Iterator[None]:
    """Errors of the disk inside the block, in words about the place that was asked for.

    Args:
        place: the file or folder the user named, or the default.
        fix: what to do about it.

    Raises:
        EvoError: `place` cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:  # another place on the same disk is no help
            raise EvoError(f"{place} cannot be written: {_FULL[error.errno]}", "free some space") from error
        raise EvoError(f"{place} cannot be written ({why(error)})", fix) from error


def why(error: OSError) -> str:
    """What the system says of an error, without the file: "read-only file system"."""
    text = error.strerror or str(error)
    return f"{text[:1].lower()}{text[1:]}" if text else type(error).__name__
