"""A program on the card: its module, its launches for given addresses, its variables restored before each run."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from fitness.devices.cuda.driver import Array, Card, Module, argument_bytes
from fitness.devices.device import Program

_GLOBAL: Final = re.compile(
    r"^(?:\.(?:visible|weak|extern|common)\s+)*\.global\s[^;={]*?([A-Za-z_$%][\w$]*)\s*(?:\[[^\]]*\])*\s*(?:=[^;]*)?;",
    re.MULTILINE,
)
_IDENTIFIER: Final = re.compile(r"%?[\w$]+")


class UnrestorableError(RuntimeError):
    """A module variable the kernel uses cannot be reached by name, so state could live on between launches."""


@functools.lru_cache(maxsize=32)  # every run of a candidate loads its program anew
def global_variables(ptx: str) -> tuple[str, ...]:
    """Module-level `.global` variables that code refers to, in order; those nothing mentions again are left out."""
    mentioned = Counter(_IDENTIFIER.findall(ptx))
    return tuple(name for name in _GLOBAL.findall(ptx) if mentioned[name] > 1)


class LoadedProgram:
    """A program whose module is loaded.

    Args:
        card: where.
        program: what.

    Raises:
        UnrestorableError: it keeps state the harness cannot reset.
        CudaError: the driver refuses the module or an attribute.
    """

    def __init__(self, card: Card, program: Program) -> None:
        self.card, self.program = card, program
        self.module = Module(card, program.compiled.cubin)
        self._images: list[tuple[int, int, int]] = []  # variable, its initial image, bytes
        with contextlib.ExitStack() as refused:
            refused.callback(self.close)
            for name in global_variables(program.compiled.ptx):
                self._keep_image(name)
            for launch in program.launches:
                self.module.allow(launch)
            refused.pop_all()

    def _keep_image(self, name: str) -> None:
        found = self.module.variable(name)
        if found is None:
            raise UnrestorableError(f"the module variable {name} has no external name")
        address, size = found
        image = self.card.allocate(size)
        self._images.append((address, image, size))
        self.card.copy(image, address, size)

    def arguments(self, addresses: Mapping[str, int]) -> tuple[tuple[Array, ...], ...]:
        """The parameter bytes of every launch for buffers at these addresses."""
        entries = self.program.compiled.entries
        return tuple(argument_bytes(entries[launch.entry], launch, addresses) for launch in self.program.launches)

    def enqueue(
        self, addresses: Mapping[str, int], sizes: Mapping[str, int], arguments: tuple[tuple[Array, ...], ...]
    ) -> None:
        """Put one run of all launches, with what must be cleared before them, on the stream.

        Args:
            addresses: of every buffer.
            sizes: bytes of those that are cleared.
            arguments: of `arguments(addresses)`.
        """
        for space in self.program.workspaces:
            if space.init == "zero":
                self.card.fill(addresses[space.name], 0, space.bytes)
        for launch, values in zip(self.program.launches, arguments, strict=True):
            for address, image, size in self._images:
                self.card.copy(address, image, size)
            for name in launch.memset:
                self.card.fill(addresses[name], 0, sizes[name])
            self.module.launch(launch, values)

    def occupancy(self, warps_per_sm: int) -> float:
        """Least share of an SM's warps that a launch keeps resident (0..1)."""
        shares = []
        for launch in self.program.launches:
            warps = -(-launch.block[0] * launch.block[1] * launch.block[2] // 32)
            shares.append(self.module.resident_blocks(launch) * warps / warps_per_sm)
        return min(shares)

    def close(self) -> None:
        """Unload it."""
        for _, image, _ in self._images:
            self.card.free(image)
        self.module.close()
