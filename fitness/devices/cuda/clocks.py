"""The card's clock, watched and never set: warmed until it is flat, read again after timing (NVML)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from fitness.devices.cuda.audit import Audit
from fitness.devices.cuda.driver import Card

FLAT: Final = 0.97
"""Share of the maximum SM clock from which times are comparable."""

_LONGEST_S: Final = 3.0
_IDLE_S: Final = 0.5  # after so long without work the clock may have dropped


@dataclass(frozen=True)
class Reading:
    """SM clock and its maximum (MHz), and what holds it down as NVML names it; empty if nothing does."""

    sm_mhz: int
    most_mhz: int
    throttled: tuple[str, ...]

    @property
    def flat(self) -> bool:
        """The clock is at its maximum, or nearly."""
        return self.sm_mhz >= FLAT * self.most_mhz and not self.throttled


_REASONS: Final = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class Clocks:
    """Reads and warms the clock of a card; without NVML (nvidia-ml-py) it warms by time alone and reads nothing."""

    def __init__(self, card: Card, audit: Audit) -> None:
        self.card, self.audit = card, audit
        self._nvml: Any = None
        self._handle: Any = None
        self._used = 0.0
        self._most_mhz = 0
        try:
            import pynvml
        except ImportError:
            return
        pynvml.nvmlInit()
        self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(card.bus_id.encode())
        self._most_mhz = int(pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_SM))

    def read(self) -> Reading | None:
        """The clock now; None without NVML."""
        if self._nvml is None:
            return None
        kind = self._nvml.NVML_CLOCK_SM
        mask = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        return Reading(
            self._nvml.nvmlDeviceGetClockInfo(self._handle, kind),
            self._most_mhz,
            tuple(name for bit, name in _REASONS.items() if mask & bit),
        )

    def warm(self) -> Reading | None:
        """Keep the card busy until its clock is flat, at most 3 s; nothing to do where it has just worked and is."""
        if time.time() - self._used < _IDLE_S:
            reading = self.read()
            if reading is None or reading.flat:
                return reading
        began = time.monotonic()
        reading = None
        while (spent := time.monotonic() - began) < _LONGEST_S:
            for _ in range(4):
                self.audit.burn(2_000_000)
            self.card.wait(_LONGEST_S)
            reading = self.read()
            if reading.flat if reading is not None else spent > 1.0:
                break
        self._used = time.time()
        return reading

    def worked(self, until: float | None = None) -> None:
        """The card was busy until then, by `time.time`; until now if None."""
        self._used = max(self._used, time.time() if until is None else until)
