"""Where a run comes from: version of evo, commit, machine. Recorded, never used."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import tomllib
from pathlib import Path

_DISTRIBUTION = "evo-kernels"
_ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    """Version of the checkout evo runs from, else of the installed distribution."""
    try:
        project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except FileNotFoundError:  # a wheel carries none
        return importlib.metadata.version(_DISTRIBUTION)
    return str(project["version"])


def commit() -> str | None:
    """Commit of the checkout evo runs from, with "+" where it has changes; None outside a checkout."""
    if not (_ROOT / ".git").exists():
        return None
    head = _git("rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


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


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
