"""The harness's own kernels (audit.cu) on a card: poison, cache flush, checksums, warming the clock."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.compile import compile_source
from fitness.devices.cuda.driver import Card, Module
from fitness.devices.device import Compiled, ResolvedLaunch

_THREADS: Final = 256
_WAIT_S: Final = 10.0
_PERIOD: Final = 262_139  # prime: no row of a matrix meets the same words as the next


def poison_words(count: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Random 32-bit words that are NaN in every floating type, whole and half by half; as `poison` of audit.cu.

    None is the NaN that hardware makes (0x7FFF, 0x7FFFFFFF): a kernel's own NaN never looks unwritten. They repeat
    after `_PERIOD` words: drawing is slower than copying.
    """
    words = rng.integers(0, 1 << 32, min(count, _PERIOD), dtype=np.uint32)
    chosen: NDArray[np.uint32] = (words & np.uint32(0x801E801E)) | np.uint32(0x7FC07F81)
    return np.resize(chosen, count)


class Audit:
    """The kernels of audit.cu, loaded; everything is enqueued on the card's stream.

    Args:
        card: where.
        arch: what NVRTC compiles for.
        l2_bytes: size of the cache that `flush` displaces twice over.
    """

    def __init__(self, card: Card, arch: str, l2_bytes: int) -> None:
        source = resources.files("fitness.devices.cuda").joinpath("audit.cu").read_text(encoding="utf-8")
        compiled = compile_source(source, arch=arch)
        assert isinstance(compiled, Compiled), compiled
        self.card = card
        self._module = Module(card, compiled.cubin)
        self._seed = card.allocate(4)
        self._sum = card.allocate(8)
        self._flushed_bytes = 2 * l2_bytes
        self._flushed = card.allocate(self._flushed_bytes)
        card.fill(self._seed, 0, 4)
        card.fill(self._flushed, 0, self._flushed_bytes)

    def poison(self, pointer: int, size: int) -> None:
        """Fill `size` bytes (rounded down to words) with poison no earlier call gave them."""
        self._run("poison", _u64(pointer), _u64(size // 4), _u64(self._seed))

    def tick(self) -> None:
        """Make the next poison another one."""
        self._run("tick", _u64(self._seed), blocks=1, threads=1)

    def flush(self) -> None:
        """Read and write twice the L2's size: nothing a candidate left there stays, no dirty line either."""
        self._run("flush", _u64(self._flushed), _u64(self._flushed_bytes // 4))

    def burn(self, rounds: int) -> None:
        """Keep all SMs busy for about 2 * rounds clocks."""
        self._run("burn", _u64(self._sum), np.array([rounds], np.int32))

    def checksum(self, pointer: int, size: int) -> int:
        """Position-dependent sum over `size` bytes; waits for it."""
        self.card.fill(self._sum, 0, 8)
        self._run("checksum", _u64(pointer), _u64(size // 4), _u64(self._sum))
        self.card.wait(_WAIT_S)
        return int(self.card.download(self._sum, 8).view(np.uint64)[0])

    def _run(self, entry: str, *arguments: NDArray[Any], blocks: int = 0, threads: int = _THREADS) -> None:
        blocks = blocks or 8 * self.card.sms
        self._module.launch(ResolvedLaunch(entry, (blocks, 1, 1), (threads, 1, 1), 0, ()), arguments)


def _u64(value: int) -> NDArray[np.uint64]:
    return np.array([value], np.uint64)
