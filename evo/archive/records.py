"""What the archive gives back that no other module has a noun for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evo.observer import Status
from mutations.operator import Candidate, Plan


@dataclass(frozen=True)
class RunRecord:
    """One run: what was asked, where it ran, how it ended. Moments are ISO 8601 UTC.

    `experiment` is the content of the experiment file with every default filled in.
    """

    id: str
    name: str
    experiment: Mapping[str, Any]
    rng_seed: int
    device: str
    gpu: str
    arch: str
    clock: str
    version: str
    commit_id: str | None
    machine: Mapping[str, Any]
    status: Status
    started_at: str
    ended_at: str | None = None


@dataclass(frozen=True)
class Refused:
    """A plan its operator could make no child for, and why."""

    plan: Plan
    why: str


Entry = Candidate | Refused
"""What a plan came to."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a run."""

    at: str
    kind: str
    data: Mapping[str, Any]
