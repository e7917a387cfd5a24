"""Basic blocks of a function: straight-line instructions, how they end, and what is live at their start."""

from __future__ import annotations

from dataclasses import dataclass, field

from fitness.devices.simulator.ptx import Instruction, Register


@dataclass(frozen=True)
class Terminator:
    """How a block ends.

    `kind`: "jump", "branch", "switch", "exit", "trap", "barrier" (block-wide), "warp_barrier", "wait" (for a phase of
    an mbarrier) or "cluster_wait".
    `targets`: successor blocks (branch: taken, not taken). `instruction`: the one that ends it, or None.
    """

    kind: str
    targets: tuple[int, ...] = ()
    instruction: Instruction | None = None
    condition: tuple[Register, bool] | None = None


@dataclass
class Block:
    """A basic block: straight-line instructions, then its terminator; registers live at its start."""

    instructions: list[Instruction]
    terminator: Terminator
    live_in: tuple[str, ...] = ()
    index: int = 0
    uses: set[str] = field(default_factory=set)
    defs: set[str] = field(default_factory=set)


@dataclass
class Graph:
    """A function's blocks by priority; `kinds` maps a register to its class, `entry` is the first block."""

    name: str
    blocks: list[Block]
    entry: int
    kinds: dict[str, str]
    tainted: frozenset[str] = frozenset()
