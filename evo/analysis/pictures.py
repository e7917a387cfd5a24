"""The picture of each matrix, and the name of its file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evo.analysis.job import Result, printable
from evo.plots.matrix import MatrixPicture


def picture_of(result: Result) -> MatrixPicture:
    """Density map and row lengths of one matrix."""
    found = result.analysis
    title = printable(result.name or result.path.name)
    return MatrixPicture(
        title=title if len(title) <= 60 else f"...{title[-57:]}",
        shape=found.shape,
        density=found.map.density,
        edges=found.rows.edges,
        counts=found.rows.counts,
    )


def picture_names(results: Sequence[Result]) -> list[str]:
    """File names without ending, all different: the file's name, and the matrix's where it has one."""
    names: list[str] = []
    for result in results:
        words = f"{result.path.name.split('.')[0]}-{result.name}" if result.name else result.path.name.split(".")[0]
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-.") or "matrix"
        name, i = base, 2
        while name in names:
            name, i = f"{base}-{i}", i + 1
        names.append(name)
    return names
