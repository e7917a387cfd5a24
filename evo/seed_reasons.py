"""The reason archived with a starting kernel: "seed NAME: what the kernel is about"."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evo.seeding import Seed

_SEED = "seed "


def seed_reason(seed: Seed) -> str:
    """The reason of a candidate of generation 0."""
    return f"{_SEED}{seed.name}: {seed.kernel.header.about}" if seed.kernel.header.about else _SEED + seed.name


def seed_name(reason: str) -> str:
    """The seed's name in a reason made by `seed_reason`."""
    return reason.removeprefix(_SEED).split(": ", 1)[0]
