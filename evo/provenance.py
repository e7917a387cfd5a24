"""Where a run comes from: version of evo, commit, machine. Recorded, never used."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path


def version() -> str:
    """Version of the installed distribution; "unknown" when run from a folder that was never installed."""
    try:
        return importlib.metadata.version("evo-kernels")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """Commit of the checkout evo runs from, with "+" where it has changes; None outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")


def machine() -> dict[str, object]:
    """What ran it, without names of people or hosts."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "numpy": importlib.metadata.version("numpy"),
        "deap": importlib.metadata.version("deap"),
    }


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
