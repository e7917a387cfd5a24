"""A card of host memory: real addresses, real bytes, kernels as Python functions. For the logic around a driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fitness.devices.cuda.driver import Array
from fitness.devices.device import Compiled, Entry, Inputs, Program, ResolvedLaunch, ResolvedWorkspace

Kernel = Callable[[Mapping[str, int], Mapping[str, int]], None]


class FakeCard:
    """What `Card` promises of memory and graphs; a capture keeps the calls, a replay makes them. Keeps a log."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.log: list[str] = []
        self.clock_us = 0.0
        self._capturing: list[Callable[[], object]] | None = None

    def _do(self, work: Callable[[], object]) -> None:
        if self._capturing is not None:
            self._capturing.append(work)
        else:
            work()

    def allocate(self, size: int) -> int:
        room = ctypes.create_string_buffer(size + 512)
        address = -(-ctypes.addressof(room) // 256) * 256
        self.held[address] = room
        return address

    def free(self, pointer: int) -> None:
        del self.held[pointer]

    def upload(self, pointer: int, array: Array) -> None:
        ctypes.memmove(pointer, array.ctypes.data, array.nbytes)

    def download(self, pointer: int, size: int) -> Array:
        return np.frombuffer(ctypes.string_at(pointer, size), np.uint8).copy()

    def copy(self, target: int, source: int, size: int) -> None:
        self._do(lambda: ctypes.memmove(target, source, size))

    def fill(self, pointer: int, value: int, size: int) -> None:
        self._do(lambda: ctypes.memset(pointer, value, size))

    def wait(self, timeout_s: float) -> None:
        del timeout_s

    def event(self) -> list[float]:
        return [0.0]

    def record(self, event: list[float]) -> None:
        def now() -> None:
            event[0] = self.clock_us
            self.log.append("event")

        self._do(now)

    def elapsed_us(self, begin: list[float], end: list[float]) -> float:
        return end[0] - begin[0]

    def capture(self, enqueue: Callable[[], None]) -> list[Callable[[], object]]:
        self._capturing = []
        enqueue()
        captured, self._capturing = self._capturing, None
        return captured

    def replay(self, graph: list[Callable[[], object]]) -> None:
        for work in graph:
            work()

    def drop(self, graph: object) -> None:
        del graph
        self.log.append("drop")


class FakeAudit:
    """Poison, flush and checksums in host memory, logged."""

    def __init__(self, card: FakeCard) -> None:
        self.card = card

    def poison(self, pointer: int, size: int) -> None:
        def work() -> None:
            ctypes.memset(pointer, 0xFF, size)
            self.card.log.append("poison")

        self.card._do(work)

    def tick(self) -> None:
        self.card._do(lambda: self.card.log.append("tick"))

    def flush(self) -> None:
        self.card._do(lambda: self.card.log.append("flush"))

    def checksum(self, pointer: int, size: int) -> int:
        return hash(ctypes.string_at(pointer, size))


def copy_program(*spaces: ResolvedWorkspace, align: int = 16) -> Program:
    """A program by name only: its kernel is given to the test's subject."""
    entry = Entry("copy", (), 16, 0, 0, 0, 0)
    compiled = Compiled("sm_90a", "", b"", "", {"copy": entry})
    return Program(compiled, (ResolvedLaunch("copy", (1, 1, 1), (32, 1, 1), 0, ()),), spaces, align)


def copy_inputs(n: int = 100) -> Inputs:
    """X (n,) and an output Y of the same size, float16."""
    return Inputs({"X": np.arange(n, dtype=np.float16)}, {"Y": np.zeros(n, np.float16)})


def poke(address: int, data: Array) -> None:
    """What a kernel would do: write bytes at an address."""
    ctypes.memmove(address, data.ctypes.data, data.nbytes)


def peek(address: int, like: Array) -> Array:
    """Read an array at an address."""
    return np.frombuffer(ctypes.string_at(address, like.nbytes), like.dtype).copy()
