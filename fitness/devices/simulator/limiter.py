"""The limiter sentence: what holds a launch back, in an engineer's words, with the line to look at."""

from __future__ import annotations

from collections.abc import Callable

from fitness.devices.simulator.cost import LaunchTime
from fitness.devices.simulator.counters import GLOBAL_KINDS, SECTOR_BYTES, SHARED_KINDS, SiteCounters

_NAMES = {
    "DRAM": "DRAM",
    "L2": "L2",
    "L1 fill": "L2-to-SM",
    "latency": "latency",
    "issue": "issue",
    "fp32": "FP32",
    "fp16": "FP16",
    "fp64": "FP64",
    "int": "integer",
    "convert": "conversion",
    "sfu": "special-function",
    "shuffle": "shuffle",
    "tensor": "tensor-core",
    "lsu": "load/store-issue",
    "bulk": "copy-engine",
    "wavefronts": "L1/shared-memory",
    "atomics": "atomics",
    "block starts": "block-start",
    "launch": "launch",
}
_WAITS = {
    "load_global": "global loads",
    "load_shared": "shared loads",
    "ldmatrix": "ldmatrix",
    "cp_async": "asynchronous copies",
    "mbarrier_wait": "an mbarrier",
    "cluster_wait": "the cluster",
    "barrier": "the barrier",
    "shuffle": "shuffles",
    "atomic_global": "atomics",
    "tensor": "the tensor pipe",
    "lsu": "the load/store pipe",
}
_WORTH_SAYING = 1.15  # times the possible, or that share of all traffic: smaller inefficiencies are left out


def sentence(time: LaunchTime, sms: int) -> str:
    """Top limiter with its reason, then the next two, as shares of the launch's time.

    Args:
        time: a modelled launch.
        sms: SMs of the card, to say where a grid is too small for it.
    """
    ranked = sorted(time.terms, key=lambda term: (-time.terms[term], term))
    share = {term: 100.0 * time.terms[term] / time.time_us for term in ranked}
    reason = _REASONS.get(ranked[0], _nothing)(time)
    head = f"{_NAMES[ranked[0]]}-bound ({share[ranked[0]]:.0f} %)" + (f": {reason}" if reason else "")
    parts = [head]
    if time.busy_sms < sms:
        parts.append(f"only {time.busy_sms} of {sms} SMs have a block")
    rest = [f"{_NAMES[term]} {share[term]:.0f} %" for term in ranked[1:3]]
    return "; ".join([*parts, "next " + ", ".join(rest)])


def _nothing(_: LaunchTime) -> str:
    return ""


def _line(site: SiteCounters) -> str:
    return f", line {site.line}" if site.line else ""


def _sectors(time: LaunchTime) -> str:
    sites = [site for site in time.sites if site.kind in GLOBAL_KINDS and site.requests]
    worst = max(sites, key=lambda site: site.sectors - site.ideal_sectors, default=None)
    total = sum(site.sectors for site in sites)
    if worst is None or worst.sectors - worst.ideal_sectors < (_WORTH_SAYING - 1.0) * total:
        return ""
    asked, possible = worst.sectors / worst.requests, worst.ideal_sectors / worst.requests
    return f"{asked:.1f} sectors per request where {possible:.1f} are possible{_line(worst)}"


def _dram(time: LaunchTime) -> str:
    moved = sum(served.dram_bytes for served in time.served.values())
    return _sectors(time) or f"{moved / 1e6:.1f} MB moved"


def _l2(time: LaunchTime) -> str:
    name = max(time.served, key=lambda n: time.served[n].l2_sectors, default="")
    if not name:
        return ""
    served, traffic = time.served[name], time.demand.traffic[name]
    read = served.l2_sectors * time.blocks
    distinct = max(traffic.grid_read, traffic.grid_written, 1.0)
    return _sectors(time) or f"{read * SECTOR_BYTES / 1e6:.0f} MB of {name}, each byte {read / distinct:.1f} times"


def _latency(time: LaunchTime) -> str:
    if not time.stalls:
        return "a chain of dependent instructions"
    (kind, line), share = max(time.stalls.items(), key=lambda item: (item[1], item[0]))
    where = f" of line {line}" if line else ""
    what = _WAITS.get(kind.removesuffix("_per_clk"), "tensor results" if ":" in kind else "arithmetic results")
    warps = time.resident * time.warps_per_block
    held = f"{warps} warps per SM"
    if time.resident == time.occupancy.blocks and time.waves > 1 and time.occupancy.fraction < 0.5:
        held += f", held by {time.occupancy.limiter}"
    return f"a warp waits {100 * min(share, 1.0):.0f} % of its time for {what}{where}; {held}"


def _shared(time: LaunchTime) -> str:
    sites = [site for site in time.sites if site.kind in SHARED_KINDS | GLOBAL_KINDS and site.requests]
    worst = max(sites, key=lambda site: site.wavefronts - site.ideal_wavefronts, default=None)
    if worst is None or worst.wavefronts < _WORTH_SAYING * worst.ideal_wavefronts:
        return "the volume itself, no conflicts"
    if worst.kind in GLOBAL_KINDS:
        return _sectors(time) or "the volume itself"
    asked, possible = worst.wavefronts / worst.requests, worst.ideal_wavefronts / worst.requests
    return f"{asked:.1f} wavefronts per request where {possible:.1f} are possible{_line(worst)}"


def _issue(time: LaunchTime) -> str:
    return f"{time.demand.issued:.0f} instructions per block, {time.demand.lanes:.0f} active lanes of 32"


def _atomics(time: LaunchTime) -> str:
    hottest = max((traffic.hottest for traffic in time.demand.traffic.values()), default=0.0)
    return f"{hottest:.0f} operations on the most contended address"


def _starts(time: LaunchTime) -> str:
    return f"{time.blocks} blocks of {time.warps_per_block} warps"


_REASONS: dict[str, Callable[[LaunchTime], str]] = {
    "DRAM": _dram,
    "L2": _l2,
    "L1 fill": _l2,
    "latency": _latency,
    "wavefronts": _shared,
    "lsu": _shared,
    "issue": _issue,
    "atomics": _atomics,
    "block starts": _starts,
}
