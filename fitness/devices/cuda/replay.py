"""Runs one pickled program once, for a tool that watches: each buffer is an allocation of exactly its size."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np

from fitness.devices.cuda.driver import Card
from fitness.devices.cuda.loaded import LoadedProgram
from fitness.devices.device import Inputs, Program


def replay(program: Program, inputs: Inputs) -> None:
    """One run on the first card; workspaces that are not cleared stay as the allocator gives them."""
    card = Card()
    loaded = LoadedProgram(card, program)
    sizes = {name: array.nbytes for name, array in {**inputs.buffers, **inputs.outputs}.items()}
    sizes |= {space.name: space.bytes for space in program.workspaces}
    # cuMemAlloc through the driver: the tools know the exact size of each allocation
    pointers = {name: card.allocate_exactly(max(size, 1)) for name, size in sizes.items()}
    for name, array in inputs.buffers.items():
        card.upload(pointers[name], np.ascontiguousarray(array))
    for space in program.workspaces:
        if space.init != "poison":
            card.fill(pointers[space.name], 0, space.bytes)
    loaded.enqueue(pointers, sizes, loaded.arguments(pointers))
    card.wait(60.0)


def main(arguments: list[str]) -> int:
    """Replay the program in the file named first."""
    program, inputs, _ = pickle.loads(Path(arguments[0]).read_bytes())
    replay(program, inputs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
