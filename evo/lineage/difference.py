"""How two kernels differ."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from fitness.kernel import Kernel


@dataclass(frozen=True)
class Difference:
    """What differs between two kernels.

    Attributes:
        params: name -> (old, new), None where a kernel lacks the param.
        source: unified diff of the source text, empty where only params changed.
        added, removed: lines of source.
    """

    params: Mapping[str, tuple[int | None, int | None]]
    source: str
    added: int
    removed: int

    @property
    def empty(self) -> bool:
        """True for the same kernel."""
        return not self.params and not self.source


def difference(old: Kernel, new: Kernel) -> Difference:
    """How `new` differs from `old`."""
    names = [*old.params, *(name for name in new.params if name not in old.params)]
    params = {
        name: (old.params.get(name), new.params.get(name))
        for name in names
        if old.params.get(name) != new.params.get(name)
    }
    if old.source == new.source:
        return Difference(params, "", 0, 0)
    lines = list(
        difflib.unified_diff(old.source.splitlines(), new.source.splitlines(), "parent", "child", lineterm="", n=2)
    )
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return Difference(params, "\n".join(lines), added, removed)
