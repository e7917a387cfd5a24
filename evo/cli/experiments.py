"""Where experiment files are found: where the user says, else among those that come with evo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import evo
from evo.errors import ExperimentError, Problem
from evo.experiment import nearest

_PACKAGE = Path(evo.__file__).parent


@dataclass(frozen=True)
class Found:
    """An experiment file; `shipped` is True where it is evo's own copy and not the path as given."""

    path: Path
    shipped: bool = False


def shipped_experiments() -> dict[str, Path]:
    """Experiments that come with evo: name -> file; from the wheel, or from the checkout."""
    for folder in (_PACKAGE / "shipped" / "experiments", _PACKAGE.parent / "experiments"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.toml"))}
    return {}


def find(given: str) -> Found:
    """Find the file a user names: `nm24.toml`, `experiments/nm24.toml` or just `nm24`, also of ./experiments.

    Raises:
        ExperimentError: neither a file nor the name of a shipped experiment.
    """
    path = Path(given)
    if path.exists():
        return Found(path)
    for place in (path.with_name(path.name + ".toml"), Path("experiments") / f"{path.name}.toml"):
        if place.is_file():
            return Found(place)
    shipped = shipped_experiments()
    if path.stem in shipped and path.suffix in ("", ".toml"):
        return Found(shipped[path.stem], shipped=True)
    raise ExperimentError(given, [Problem("", "no such file", nearest(path.stem, shipped))])
