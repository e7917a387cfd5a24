"""The seed library: verified kernels to start a search from, `<op>/<format>_<idea>.cu`. Only paths, no code."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).resolve().parent


def seed_paths(pattern: str) -> tuple[Path, ...]:
    """Files whose name `<op>/<stem>` matches a glob pattern, sorted by name.

    Args:
        pattern: "spmm/nm24_*", "gemm/dense_naive", "*/*"; without the suffix `.cu`.

    Returns:
        Absolute paths; empty where nothing matches.
    """
    if pattern.count("/") != 1 or pattern.startswith("/") or ".." in pattern:
        return ()
    return tuple(sorted(_FOLDER.glob(f"{pattern}.cu")))
