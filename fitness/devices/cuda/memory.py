"""Where a program's buffers lie on the card: between guard zones where it is checked, rotating where it is timed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.devices.cuda.audit import Audit, poison_words
from fitness.devices.cuda.driver import Card
from fitness.devices.device import Inputs, Program

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

GUARD: Final = 4096
"""Bytes before, between and after the buffers of a checked run, filled with random NaN."""

ALIGNMENT: Final = 256
"""Of every buffer of a timed run, as the vendor libraries get them."""

MOST_SETS: Final = 64
"""Of one case's operands: no sample has more runs, and the L2 is flushed before each."""

KEPT_BYTES: Final = 16 << 30
"""Rotating operand sets that a process keeps for the next candidate."""


@dataclass(frozen=True)
class Place:
    """Where a buffer lies in a slab, bytes."""

    offset: int
    size: int


def layout(sizes: Mapping[str, int], align: int, guard: int = GUARD) -> tuple[dict[str, Place], int]:
    """Offsets of buffers that are aligned to `align` bytes and to no more, a guard zone on either side of each.

    Returns:
        (places, bytes of the whole slab). The slab must begin at a multiple of 2 * align.
    """
    places, end = {}, 0
    for name, size in sizes.items():
        offset = -(-(end + guard) // (2 * align)) * 2 * align + align
        places[name] = Place(offset, size)
        end = offset + size
    return places, -(-(end + guard) // ALIGNMENT) * ALIGNMENT


class Slab:
    """All buffers of one checked run in one piece of memory, and what the host expects to find around them.

    It is made on the host alone; `place` puts it on the card.

    Args:
        card: where.
        program: gives workspaces and alignment.
        inputs: gives the data.
        seed: of guards and poison.
    """

    def __init__(self, card: Card, program: Program, inputs: Inputs, seed: int) -> None:
        self.card, self.program, self.inputs = card, program, inputs
        sizes = {name: array.nbytes for name, array in {**inputs.buffers, **inputs.outputs}.items()}
        sizes |= {space.name: space.bytes for space in program.workspaces}
        self.places, size = layout(sizes, program.align)
        self.image = poison_words(-(-size // 4), np.random.default_rng(seed)).view(np.uint8)
        for name, array in inputs.buffers.items():
            self.part(self.image, name)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for space in program.workspaces:
            if space.init != "poison":
                self.part(self.image, space.name)[:] = 0
        self.base = 0
        self.addresses: dict[str, int] = {}
        self.seen: Bytes = self.image

    def place(self) -> None:
        """Put it on the card.

        Raises:
            MemoryError: the card has no room.
        """
        self.base = self.card.allocate(self.image.nbytes)
        self.card.upload(self.base, self.image)
        self.addresses = {name: self.base + place.offset for name, place in self.places.items()}

    def part(self, image: Bytes, name: str) -> Bytes:
        """The bytes of a buffer in an image of the slab."""
        place = self.places[name]
        return image[place.offset : place.offset + place.size]

    def read(self) -> None:
        """Fetch the slab after the run."""
        self.seen = self.card.download(self.base, self.image.nbytes)

    def output(self, name: str) -> Array:
        """An output as the run left it."""
        like = self.inputs.outputs[name]
        return self.part(self.seen, name).view(like.dtype).reshape(like.shape)

    def written(self, name: str) -> NDArray[np.bool_]:
        """Where an output no longer holds its poison; all True for types too short to tell."""
        like = self.inputs.outputs[name]
        if like.dtype.itemsize < 2:
            return np.ones(like.shape, np.bool_)
        bits = f"u{like.dtype.itemsize}"
        changed = self.part(self.seen, name).view(bits) != self.part(self.image, name).view(bits)
        return np.asarray(changed).reshape(like.shape)

    def changed(self, name: str) -> int | None:
        """Offset of the first byte of a buffer that differs from what was put there; None if none does."""
        different = np.flatnonzero(self.part(self.seen, name) != self.part(self.image, name))
        return int(different[0]) if different.size else None

    def overrun(self) -> tuple[str, int] | None:
        """(buffer, offset) of the first guard byte written, the offset from the nearest buffer's start."""
        begin = 0
        for place in (*sorted(self.places.values(), key=lambda place: place.offset), Place(self.image.nbytes, 0)):
            guard = slice(begin, place.offset)
            hit = np.flatnonzero(self.seen[guard] != self.image[guard])
            if hit.size:
                return self._nearest(begin + int(hit[0]))
            begin = place.offset + place.size
        return None

    def _nearest(self, at: int) -> tuple[str, int]:
        """The buffer a byte outside of all lies next to, and the byte's offset from its start."""
        distances = {
            name: max(place.offset - at, at - (place.offset + place.size - 1)) for name, place in self.places.items()
        }
        name = min(distances, key=lambda key: distances[key])
        return name, at - self.places[name].offset

    def close(self) -> None:
        """Give the memory back."""
        self.card.free(self.base)


@dataclass(frozen=True)
class OperandSets:
    """Copies of one case's inputs for timed runs: so many that none is still in L2 when it is used again.

    Attributes:
        addresses: per set, of every input buffer.
        bases: per set, of the memory that holds it; bytes: of one set; checksum: of an untouched set.
        held: the host arrays, so that their identity stays theirs.
    """

    addresses: tuple[Mapping[str, int], ...]
    bases: tuple[int, ...]
    bytes: int
    checksum: int
    held: tuple[Array, ...]


class OperandCache:
    """Operand sets by the host arrays they are copies of; the least recently used go when memory runs short."""

    def __init__(self, card: Card, audit: Audit, l2_bytes: int) -> None:
        self.card, self.audit, self.l2_bytes = card, audit, l2_bytes
        self._kept: OrderedDict[tuple[tuple[str, int], ...], OperandSets] = OrderedDict()

    def get(self, inputs: Inputs) -> OperandSets:
        """Sets of these inputs, 5x L2 in all, or as many as a sample has runs at most."""
        key = tuple(sorted((name, id(array)) for name, array in inputs.buffers.items()))
        if key not in self._kept:
            self._kept[key] = self._make(inputs)
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(len(s.bases) * s.bytes for s in self._kept.values()) > KEPT_BYTES:
            self.drop(next(iter(self._kept.values())))
        return self._kept[key]

    def drop(self, sets: OperandSets) -> None:
        """Forget sets, because memory is needed or a candidate wrote to them."""
        for key in [key for key, kept in self._kept.items() if kept is sets]:
            for base in self._kept.pop(key).bases:
                self.card.free(base)

    def intact(self, sets: OperandSets) -> bool:
        """True if all sets still hold what was put there."""
        return all(self.audit.checksum(base, sets.bytes) == sets.checksum for base in sets.bases)

    def _make(self, inputs: Inputs) -> OperandSets:
        offsets, size = {}, 0
        for name, array in inputs.buffers.items():
            offsets[name] = size
            size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        count = min(MOST_SETS, max(2, -(-5 * self.l2_bytes // size)))
        image = np.zeros(size, np.uint8)
        for name, array in inputs.buffers.items():
            image[offsets[name] : offsets[name] + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        bases = [self.card.allocate(size) for _ in range(count)]
        self.card.upload(bases[0], image)
        for base in bases[1:]:
            self.card.copy(base, bases[0], size)
        addresses = tuple({name: base + offset for name, offset in offsets.items()} for base in bases)
        total = self.audit.checksum(bases[0], size)
        return OperandSets(addresses, tuple(bases), size, total, tuple(inputs.buffers.values()))
