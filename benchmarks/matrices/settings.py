"""Settings of a seed's params that a sweep tries: `SEED NAME=V1,V2 ...`, every combination that the seed allows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fitness.kernel import Kernel, load_kernel
from seeds import seed_paths


@dataclass(frozen=True)
class Setting:
    """Values of some params, name by name; the others keep their defaults."""

    params: tuple[tuple[str, int], ...]

    def title(self, seed: str) -> str:
        """The seed's name with them."""
        return " ".join([seed, *(f"{name}={value}" for name, value in self.params)])

    def of(self, kernel: Kernel | str) -> Kernel | str:
        """The kernel with them; why there is none is passed on."""
        return kernel if isinstance(kernel, str) else kernel.with_params(dict(self.params))


Variants = Mapping[str, Sequence[Setting]]
"""Seed -> settings of it that are tried."""


class SweepError(ValueError):
    """A sweep that cannot be: no such seed, param or value."""


def settings_of(words: Sequence[str]) -> tuple[str, tuple[Setting, ...]]:
    """The seed and every allowed combination; a name alone stands for all values of that param, none for all defaults.

    Raises:
        SweepError: there is no such seed, param or value, or nothing is allowed.
    """
    if not words or len(paths := seed_paths(words[0])) != 1:
        raise SweepError(f"{words[0] if words else 'nothing'}: no seed; write one as spmm/csr_binned")
    kernel = load_kernel(paths[0])
    chosen = dict(_values(kernel, word) for word in words[1:])
    combinations = (tuple(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))
    found = tuple(Setting(each) for each in combinations if kernel.feasible({**kernel.params, **dict(each)}))
    if not found:
        raise SweepError(f"{words[0]}: its constraints allow none of these settings")
    return words[0], found


def variants_of(sweeps: Sequence[Sequence[str]]) -> Mapping[str, tuple[Setting, ...]]:
    """Seed -> settings; a seed that is named twice has those of both.

    Raises:
        SweepError: as `settings_of`.
    """
    found: dict[str, tuple[Setting, ...]] = {}
    for words in sweeps:
        seed, settings = settings_of(words)
        found[seed] = tuple(dict.fromkeys((*found.get(seed, ()), *settings)))
    return found


def _values(kernel: Kernel, word: str) -> tuple[str, tuple[int, ...]]:
    name, given, values = word.partition("=")
    param = kernel.header.params.get(name)
    if param is None:
        raise SweepError(f"{word}: no param of this seed; it has {', '.join(kernel.header.params)}")
    if not given:
        return name, tuple(param.values)
    wanted = tuple(int(value) if value.strip().isdigit() else -1 for value in values.split(","))
    if unknown := [value for value in wanted if value not in param.values]:
        raise SweepError(f"{word}: {unknown[0]} is no value of {name}; it takes {', '.join(map(str, param.values))}")
    return name, wanted
