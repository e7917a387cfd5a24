"""Facts for prompts, as plain values: the task, its pattern and formats, the card, a verdict. No IO, no chance."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from fitness.compile import preludes
from fitness.compiler.includes import FAMILIES, HEADERS
from fitness.dtypes import DTYPES
from fitness.formats import FORMATS, get_format
from fitness.gpu import Gpu
from fitness.kernel import Kernel
from fitness.outcome import Finding, Gate, Outcome, Timed, Timing
from fitness.task import Task
from mutations.llm.quoting import numbered, phrase
from mutations.operator import Judged

_FINDINGS: Final = 6
_NOT_FOR_MODELS: Final = frozenset({"seeds", "baseline", "tolerance"})
_SHOWN: Final = 16  # elements of an array in a worked example


def task_facts(task: Task, gpu: Gpu) -> Mapping[str, Any]:
    """What is computed, by the task's own fields. `floor_us`: roofline floor of each shape on the card."""
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    facts = {name: _plain(value) for name, value in fields.items() if name not in _NOT_FOR_MODELS}
    return facts | {"floor_us": [round(task.floor_us(shape, gpu), 3) for shape in task.shapes]}


def _plain(value: object) -> object:
    """As JSON holds it; texts without paths of this machine."""
    if isinstance(value, str):
        return phrase(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float) else str(getattr(value, "text", value))


@functools.lru_cache(maxsize=8)
def pattern_facts(task: Task) -> Mapping[str, Any]:
    """Figures of W's pattern: exact density, and the rest of a drawn sample of at most 256 x 1024."""
    shape = max(task.shapes, key=lambda s: s["M"] * s["K"])
    size = min(shape["M"], 256), min(shape["K"], 1024)
    mask = task.structure.mask(size, np.random.default_rng(0))
    rows = mask.sum(axis=1)
    groups = mask[:, : size[1] // 4 * 4].reshape(size[0], -1, 4).sum(axis=2)
    return {
        "density": round(task.nnz(shape) / (shape["M"] * shape["K"]), 6),
        "sample": list(size),
        "nonzeros_per_row": [int(rows.min()), round(float(rows.mean()), 1), int(rows.max())],
        "empty_rows": int((rows == 0).sum()),
        "empty_columns": int((mask.sum(axis=0) == 0).sum()),
        "most_nonzeros_of_4_along_K": int(groups.max()) if groups.size else 0,
    }


@functools.lru_cache(maxsize=8)
def usable_formats(task: Task) -> tuple[str, ...]:
    """Formats that can store the task's W."""
    return tuple(name for name in FORMATS if task.supports(name))


def format_summary(name: str) -> str:
    """The format's first sentence, for one that is only named."""
    module = sys.modules[type(get_format(name)).__module__]
    return phrase(inspect.cleandoc(module.__doc__ or "").split("\n\n")[0], 200)


@functools.lru_cache(maxsize=32)
def format_facts(task: Task, name: str) -> Mapping[str, Any]:
    """Layout (the format's own documentation), options, argument names, and a worked example made by packing."""
    storage = get_format(name)
    module = sys.modules[type(storage).__module__]
    return {
        "name": name,
        "layout": inspect.cleandoc(module.__doc__ or ""),
        "options": {option: list(choices) for option, choices in storage.options.items()},
        "arguments": list(task.argument_names(name)),
        "example": _example(task, name),
    }


def _example(task: Task, name: str) -> list[str]:
    """A small W packed in the format's default options, in lines: its first row, then every array."""
    storage = get_format(name)
    shape = task.small_shapes()[0]
    mask = task.structure.mask((shape["M"], shape["K"]), np.random.default_rng(0))
    w = np.zeros(mask.shape, np.float32)
    w[mask] = np.arange(1, int(mask.sum()) + 1) % 97 + 1
    stored = w.astype(DTYPES[task.dtype].numpy)
    options = {option: choices[0] for option, choices in storage.options.items()}
    row = ", ".join(f"[{k}] = {w[0, k]:g}" for k in np.flatnonzero(mask[0])[: _SHOWN // 2])
    lines = [f"W is {mask.shape[0]} x {mask.shape[1]}; its first row begins with the nonzeros {row}"]
    for array_name, array in storage.pack(stored, options).items():
        flat = array.reshape(-1)[:_SHOWN]
        values = ", ".join(f"0x{int(v):x}" if array.dtype == np.uint32 else f"{float(v):g}" for v in flat)
        lines.append(f"W.{array_name}: {array.dtype} {list(array.shape)}, begins with {values}")
    return lines


def gpu_facts(gpu: Gpu) -> Mapping[str, Any]:
    """The card, by its data sheet."""
    limits = gpu.limits
    return {
        "name": gpu.name,
        "arch": gpu.arch,
        "sms": gpu.sms,
        "clock_ghz": gpu.clock_ghz,
        "l2_mb": round(gpu.l2_bytes / 2**20, 1),
        "dram_gb_per_s": gpu.bandwidth_gb_per_s,
        "tflops": dict(gpu.tflops),
        "threads_per_block": limits.threads_per_block,
        "shared_bytes_per_block": limits.shared_bytes_per_block,
        "shared_bytes_per_sm": limits.shared_bytes_per_sm,
        "registers_per_sm": limits.registers_per_sm,
        "registers_per_thread": limits.registers_per_thread,
        "warps_per_sm": limits.warps_per_sm,
    }


def includes() -> tuple[str, ...]:
    """What a kernel may include."""
    return (*HEADERS, *FAMILIES)


@functools.cache
def own_headers() -> Mapping[str, str]:
    """What our own headers, `evo.cuh` apart, say about themselves in their first lines."""
    found = {}
    for name, text in preludes().items():
        lines = text.splitlines()
        first = next((place for place, line in enumerate(lines) if not line.startswith("//")), len(lines))
        said = " ".join(line.removeprefix("//").strip() for line in lines[:first])
        found[name] = said.removeprefix(f"{name}:").strip()
    return {name: said for name, said in found.items() if name != "evo.cuh"}


def shape_text(shape: Mapping[str, int]) -> str:
    """`M=4096 K=4096 N=16`: W first, then X."""
    order = [name for name in "MKN" if name in shape] + [name for name in shape if name not in "MKN"]
    return " ".join(f"{name}={shape[name]}" for name in order)


def timing_lines(outcome: Outcome) -> list[str]:
    """The profile: time, floor, rates and limiter of every shape, then what the kernel uses."""
    if not isinstance(outcome, Timed):
        return []
    lines = [_timing_line(timing) for timing in outcome.timings]
    used = outcome.resources
    lines.append(
        f"{used.registers} registers a thread, {used.shared_bytes} bytes of shared memory a block, "
        f"{used.spill_bytes} bytes spilled a thread, occupancy {100 * used.occupancy:.0f} %"
    )
    return lines


def _timing_line(timing: Timing) -> str:
    return (
        f"{shape_text(timing.shape)}: {timing.time_us:.4g} us {timing.clock}, floor {timing.floor_us:.4g} us"
        f" ({100 * timing.floor_us / timing.time_us:.0f} % of it reached), {timing.tflops:.3g} TFLOP/s,"
        f" {timing.gb_per_s:.4g} GB/s" + (f"; limited by {phrase(timing.limiter)}" if timing.limiter else "")
    )


def finding_lines(outcome: Outcome, kernel: Kernel) -> list[str]:
    """The first findings, errors first, with the source lines they point at."""
    ranked = sorted(outcome.findings, key=lambda finding: finding.severity != "error")
    lines = []
    for finding in ranked[:_FINDINGS]:
        lines.append(_finding_line(finding))
        excerpt = numbered(kernel.source, finding.line)
        lines += excerpt.splitlines()
    if len(ranked) > _FINDINGS:
        lines.append(f"and {len(ranked) - _FINDINGS} more findings of this kind or less severe")
    return lines


def _finding_line(finding: Finding) -> str:
    place = f" at line {finding.line}" if finding.line is not None else ""
    shape = f" at {shape_text(finding.shape)}" if finding.shape is not None else ""
    text = f"{finding.severity} {finding.kind}{place}{shape}: {phrase(finding.message)}"
    if finding.wrong is not None:
        wrong = finding.wrong
        text += (
            f"; {wrong.wrong} of {wrong.total} elements are wrong, pattern {phrase(wrong.pattern)}; first wrong"
            f" element (m, n) = {wrong.first}: got {wrong.got:g}, want {wrong.want:g}; largest error"
            f" {wrong.margin:.3g} times the tolerance"
        )
        if wrong.suggestion:
            text += f"; {phrase(wrong.suggestion)}"
    return text + (f"; try: {phrase(finding.suggestion)}" if finding.suggestion else "")


def verdict_text(outcome: Outcome) -> str:
    """A verdict in a few words."""
    if isinstance(outcome, Timed):
        if outcome.stage < Gate.TIMING:
            return "right as far as it was checked, but so slow that it was given up"
        return ", ".join(f"{timing.time_us:.4g} us at {shape_text(timing.shape)}" for timing in outcome.timings)
    first = next((f for f in outcome.findings if f.severity == "error"), None)
    why = f": {first.kind}, {phrase(first.message, 160)}" if first is not None else ""
    return f"{outcome.kind} at gate {outcome.stage.name.lower()}{why}"


def strengths(one: Judged, other: Judged) -> list[str]:
    """Which of two parents is faster at which shape."""
    if not isinstance(one.outcome, Timed) or not isinstance(other.outcome, Timed):
        return []
    lines = []
    for a, b in zip(one.outcome.timings, other.outcome.timings, strict=False):
        first, second = ("A", "B") if a.time_us <= b.time_us else ("B", "A")
        fast, slow = sorted((a.time_us, b.time_us))
        lines.append(f"{shape_text(a.shape)}: {first} is faster, {fast:.4g} us against {slow:.4g} us of {second}")
    return lines


def params_text(kernel: Kernel) -> str:
    """`BM = 64, BN = 16`."""
    return ", ".join(f"{name} = {value}" for name, value in kernel.params.items()) or "none"


def focus(judged: Judged) -> Timing | None:
    """The shape that stands farthest from its floor."""
    timings: Sequence[Timing] = judged.outcome.timings if isinstance(judged.outcome, Timed) else ()
    return max(timings, key=lambda timing: timing.time_us / timing.floor_us, default=None)
