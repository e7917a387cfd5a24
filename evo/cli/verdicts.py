"""What `evo evaluate` does and shows."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from evo.cli import tracing
from evo.cli.experiments import find
from evo.errors import EvoError
from evo.experiment import Experiment
from evo.gpu_pool import GpuPool
from evo.pool import CandidateLimits, DeviceSpec, Pool
from evo.progress import shape_text, time_text
from fitness import feedback
from fitness import gpu as gpus
from fitness.devices import resolve
from fitness.devices.cuda.available import missing
from fitness.devices.device import Profile
from fitness.devices.simulator.profiling import INSTRUCTIONS, WAITS
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Finding, Gate, Outcome, Timed, Timing
from fitness.task import Task
from seeds import seed_paths


@dataclass(frozen=True)
class Asked:
    """The arguments of `evo evaluate`, as its help describes them."""

    kernel: Path
    experiment: str
    settings: tuple[str, ...]
    params: tuple[str, ...]
    depth: str
    full: bool
    profile: bool
    sanitize: bool
    end_to_end: bool
    trace: tuple[str, ...]
    as_json: bool


@dataclass(frozen=True)
class Verdict:
    """Everything found about one kernel.

    Attributes:
        kernel, kind, gpu: what was judged, on which device.
        outcome: of the gates. profiles: (shape, profile); sanitized: findings; trace: of one thread at one line;
            end_to_end: what calls cost; None where not asked for.
    """

    kernel: Kernel
    kind: str
    gpu: str
    outcome: Outcome
    profiles: tuple[tuple[dict[str, int], Profile], ...] | None
    sanitized: tuple[Finding, ...] | None
    trace: feedback.Trace | None = None
    end_to_end: tuple[feedback.EndToEnd, ...] | None = None


def evaluate_kernel(asked: Asked) -> int:
    """Judge, show; the exit code.

    Raises:
        EvoError: anything the user can put right.
    """
    path = _path(asked.kernel)
    experiment = Experiment.load(find(asked.experiment).path, asked.settings)
    kernel = _kernel(path, asked)
    verdict = _judge(kernel, experiment, asked)
    if asked.as_json:
        click.echo(json.dumps(as_json(verdict), indent=2))
    else:
        for line in lines(verdict):
            click.echo(line)
    return 0 if verdict.outcome.valid else 1


def _path(given: Path) -> Path:
    """A file, or a seed by its name ("spmm/nm24_mma_sp")."""
    if given.is_file():
        return given
    named = seed_paths(str(given))
    if len(named) == 1:
        return named[0]
    if len(named) > 1:
        raise EvoError(f"{given}: {len(named)} seeds are called so", "one kernel is judged: name one of them")
    names = [f"{path.parent.name}/{path.stem}" for path in seed_paths("*/*")]
    close = difflib.get_close_matches(str(given).removesuffix(".cu").removeprefix("seeds/"), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else 'give the path of a .cu file, or a seed such as "spmm/nm24_mma_sp"'
    raise EvoError(f"{given}: no such file, and no seed", hint)


def _kernel(path: Path, asked: Asked) -> Kernel:
    kernel = load_kernel(path)
    params = dict(kernel.params)
    for text in asked.params:
        name, _, value = text.partition("=")
        if name not in params or not value.lstrip("-").isdigit():
            raise EvoError(f"--param {text}: the kernel has {', '.join(params) or 'no params'}", "write NAME=VALUE")
        params[name] = int(value)
    return kernel.with_params(params)


def _judge(kernel: Kernel, experiment: Experiment, asked: Asked) -> Verdict:
    task, gpu = experiment.checked_task, gpus.load(experiment.device.gpu)
    point, sizes = tracing.place(asked.trace, tuple(task.small_shapes()[0])) if asked.trace else (None, {})
    kind, _ = resolve(experiment.device.kind, gpu)
    if kind == "cuda" and (problem := missing()):
        raise EvoError(f'device.kind = "cuda": {problem}', "evo doctor says what this machine can do")
    if asked.end_to_end and kind != "cuda":
        raise EvoError(
            "--end-to-end measures, and there is no card", "leave it out; modelled times are of kernels alone"
        )
    limits = CandidateLimits(experiment.limits.compile_s, experiment.limits.steps, experiment.limits.run_s)
    spec = DeviceSpec(kind, gpu.name, compiler=experiment.device.compiler)
    outcome = _outcome(kernel, task, spec, limits, asked)
    runs = outcome.stage > Gate.COMPILE or outcome.valid
    try:
        profiles = feedback.profiles(kernel, task, kind, gpu, spec.compiler) if asked.profile and runs else None
        sanitized = feedback.sanitized(kernel, task, kind, gpu, spec.compiler) if asked.sanitize and runs else None
        trace = feedback.traced(kernel, task, gpu, point, sizes, spec.compiler) if point is not None and runs else None
        calls = feedback.end_to_end(kernel, task, gpu, spec.compiler) if asked.end_to_end and outcome.valid else None
    except (feedback.FeedbackError, RuntimeError) as error:
        raise EvoError(
            f"{asked.kernel}: {error}",
            "leave out --profile, --sanitize, --end-to-end and --trace for the verdict alone",
        ) from error
    shaped = None if profiles is None else tuple((dict(shape), profile) for shape, profile in profiles)
    return Verdict(kernel, kind, gpu.name, outcome, shaped, sanitized, trace, calls)


def _outcome(kernel: Kernel, task: Task, spec: DeviceSpec, limits: CandidateLimits, asked: Asked) -> Outcome:
    depth = Gate[asked.depth.upper()]
    pool: Pool | GpuPool = (
        GpuPool(spec.gpu, [0], 1, limits, compiler=spec.compiler) if spec.kind == "cuda" else Pool(spec, 1, limits)
    )
    with pool:
        if depth <= Gate.COMPILE:
            ((_, prepared),) = pool.prepare(task, [(0, kernel)])
            if isinstance(prepared, Outcome):
                return prepared
            return Timed(Gate.COMPILE, prepared.findings, prepared.cost, prepared.code_key)
        ((_, outcome),) = pool.judge(task, [(0, kernel)], depth, None, full=asked.full)
    return outcome


def lines(verdict: Verdict) -> list[str]:
    """A verdict for a person."""
    outcome = verdict.outcome
    where = f"simulator of {verdict.gpu}" if verdict.kind == "simulator" else verdict.gpu
    said = [
        f"kernel    {verdict.kernel.header.about}",
        f"params    {', '.join(f'{name}={value}' for name, value in verdict.kernel.params.items()) or 'none'}",
        f"device    {where}",
        f"verdict   {'valid' if outcome.valid else outcome.kind}, gate {outcome.stage.name.lower().replace('_', ' ')}",
    ]
    if isinstance(outcome, Timed):
        said += [_time(timing) for timing in outcome.timings]
        used = outcome.resources
        if used.registers:
            said.append(
                f"uses      {used.registers} registers, {used.shared_bytes} bytes shared, {used.spill_bytes} bytes "
                f"spilled" + (f", occupancy {used.occupancy:.2f}" if used.occupancy else "")  # known once timed
            )
    said += [_finding(finding) for finding in outcome.findings]
    for shape, profile in verdict.profiles or ():
        said.append(f"profile   {shape_text(shape)}: {profile.limiter}")
        said += [f"          {name} {value:.6g}" for name, value in sorted(profile.counters.items())]
        said += [_line(verdict.kernel, line, counts, profile) for line, counts in _busiest(profile)]
    if verdict.sanitized is not None:
        said += [_finding(finding) for finding in verdict.sanitized] or ["sanitizer nothing found"]
    for cost in verdict.end_to_end or ():
        said += _end_to_end(cost)
    if verdict.trace is not None:
        said += tracing.lines(verdict.trace)
        said += [_finding(finding) for finding in verdict.trace.findings]
    return said


def _end_to_end(cost: feedback.EndToEnd) -> list[str]:
    calls = cost.calls
    said = [
        f"calls     {shape_text(cost.shape)}: W packed in {1e3 * cost.pack_s:.3g} ms and uploaded in "
        f"{1e3 * calls.upload_s:.3g} ms, once; a call takes {time_text(calls.launch_us)} of the host, "
        f"{time_text(calls.stream_us)} in a stream, {time_text(calls.graph_us)} in a graph (warm operands); "
        f"{time_text(calls.request_us)} from X to Y in the host's memory"
    ]
    said += [f"  nsys    {each.name}: {each.count} x {time_text(each.median_us)}" for each in cost.nsys]
    return said + ([f"  nsys    no report: {cost.no_nsys}"] if cost.no_nsys else [])


_SHOWN_LINES = 6


def _busiest(profile: Profile) -> list[tuple[int, Mapping[str, float]]]:
    """The source lines that most is waited for or executed at, in the order of the source."""
    total = profile.counters.get(INSTRUCTIONS, 0.0) or 1.0

    def weight(item: tuple[int, Mapping[str, float]]) -> float:
        return max(item[1].get(WAITS, 0.0), 100 * item[1].get(INSTRUCTIONS, 0.0) / total)

    return sorted(sorted(profile.per_line.items(), key=weight, reverse=True)[:_SHOWN_LINES])


def _line(kernel: Kernel, line: int, counts: Mapping[str, float], profile: Profile) -> str:
    total = profile.counters.get(INSTRUCTIONS, 0.0) or 1.0
    parts = [f"{100 * counts.get(INSTRUCTIONS, 0.0) / total:.0f} % of instructions"]
    if counts.get(WAITS, 0.0) >= 0.5:
        parts.append(f"{counts[WAITS]:.0f} % of the time waits for it")
    for direction, verb in (("ld", "read"), ("st", "written")):
        ratio = counts.get(f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{direction}.ratio")
        if ratio:
            parts.append(f"{ratio:.1f} sectors {verb} per request")
    if conflicts := counts.get("l1tex__data_bank_conflicts_pipe_lsu.sum"):
        parts.append(f"{conflicts:.4g} bank conflicts")
    source = kernel.source.splitlines()
    text = source[line - 1].strip() if line <= len(source) else ""
    return f"  line {line:<4d} {', '.join(parts)}: {text[:80]}"


def _lines_json(profile: Profile) -> dict[str, dict[str, float]]:
    return {str(line): dict(counts) for line, counts in profile.per_line.items()}


def _time(t: Timing) -> str:
    limiter = f"; {t.limiter}" if t.limiter else ""
    return (
        f"time      {shape_text(t.shape)}: {time_text(t.time_us)} {t.clock} [{t.low_us:.4g}, {t.high_us:.4g}], "
        f"{100 * t.floor_us / t.time_us:.0f} % of the floor, {t.tflops:.3g} TFLOP/s, {t.gb_per_s:.0f} GB/s{limiter}"
    )


def _finding(finding: Finding) -> str:
    line = f" line {finding.line}:" if finding.line else ""
    hint = f" ({finding.suggestion})" if finding.suggestion else ""
    return f"{finding.severity:<9} {finding.kind}:{line} {finding.message}{hint}"


def as_json(verdict: Verdict) -> dict[str, object]:
    """A verdict for a program. Times in microseconds."""
    outcome = verdict.outcome
    timed = outcome if isinstance(outcome, Timed) else None
    return {
        "kernel": verdict.kernel.id,
        "params": dict(verdict.kernel.params),
        "device": verdict.kind,
        "gpu": verdict.gpu,
        "valid": outcome.valid,
        "verdict": outcome.kind,
        "gate": outcome.stage.name.lower(),
        "code_key": outcome.code_key,
        "timings": [dataclasses.asdict(timing) for timing in timed.timings] if timed else [],
        "resources": dataclasses.asdict(timed.resources) if timed else None,
        "findings": [_finding_json(finding) for finding in outcome.findings],
        "profiles": None
        if verdict.profiles is None
        else [
            {"shape": s, "limiter": p.limiter, "counters": dict(p.counters), "lines": _lines_json(p)}
            for s, p in verdict.profiles
        ],
        "sanitized": None if verdict.sanitized is None else [_finding_json(finding) for finding in verdict.sanitized],
        "end_to_end": None if verdict.end_to_end is None else [dataclasses.asdict(c) for c in verdict.end_to_end],
        "trace": None if verdict.trace is None else tracing.as_json(verdict.trace),
        "compile_s": outcome.cost.compile_s,
        "evaluate_s": outcome.cost.evaluate_s,
    }


def _finding_json(finding: Finding) -> dict[str, object]:
    return dataclasses.asdict(finding) | {"gate": finding.gate.name.lower()}
