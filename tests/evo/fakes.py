"""A world without a compiler or a device: kernels with a known time, a pool that knows it, two operators."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evo.evaluator import never
from evo.experiment import Experiment
from evo.observer import GenerationStats, RunInfo, RunSummary, State
from fitness.kernel import Kernel, parse_kernel
from fitness.outcome import (
    CompileFailed,
    Cost,
    Finding,
    Gate,
    Outcome,
    Resources,
    Timed,
    Timing,
    WrongResult,
)
from fitness.task import Task
from mutations.operator import Context, Judged, Proposal, Refusal

SOURCE = """/*---
about  = "{about}"
format = "{format}"
[[launch]]
kernel = "k"
grid   = ["1"]
block  = ["32"]
args   = ["W.values", "X", "Y"]
[params]
A = {{ values = [1, 2, 4, 8, 16, 32], default = 1 }}
B = {{ values = [1, 2, 4, 8, 16, 32], default = 1 }}
C = {{ values = [1, 2, 4, 8], default = 1 }}
SAME = {{ values = [0, 1], default = 0 }}
---*/
extern "C" __global__ void k(const void* w, const void* x, void* y) {{}}
"""

FAMILY_US = {"slow": 400.0, "middle": 90.0, "fast": 60.0, "dense": 80.0}
BEST = {"A": 8, "B": 16, "C": 4}


def source(about: str, storage: str = "nm24") -> str:
    """Text of a fake kernel of one family."""
    return SOURCE.format(about=about, format=storage)


def kernel(about: str = "fast", **params: int) -> Kernel:
    """A fake kernel."""
    return parse_kernel(source(about), params=params)


def spec(**changes: Any) -> dict[str, Any]:
    """Content of an experiment file; changes as dotted keys with "__" for the dot."""
    data: dict[str, Any] = {
        "name": "fake",
        "rng_seed": 7,
        "task": {
            "op": "spmm",
            "pattern": {"kind": "nm", "n": 2, "m": 4},
            "dtype": "float16",
            "shapes": [{"M": 128, "K": 128, "N": 16}, {"M": 128, "K": 256, "N": 32}],
            "seeds": ["spmm/fake_*"],
        },
        "device": {"kind": "simulator", "gpu": "H200"},
        "search": {"generations": 4, "children": 8, "islands": 2},
        "operators": {"tune": 2, "splice": 1},
    }
    for key, value in changes.items():
        node = data
        *path, last = key.split("__")
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return data


def experiment(**changes: Any) -> Experiment:
    """A checked experiment."""
    return Experiment.from_dict(spec(**changes))


def time_us(candidate: Kernel, shape: Mapping[str, int]) -> float:
    """The known time: the family's, times a bowl over log2 of the params, times the shape's size."""
    bowl = sum((math.log2(candidate.params[name]) - math.log2(BEST[name])) ** 2 for name in BEST)
    return FAMILY_US[candidate.header.about] * (1 + bowl / 12) * math.sqrt(shape["K"] / 128)


def timings(candidate: Kernel, task: Task, floor_us: float = 1.5) -> tuple[Timing, ...]:
    """Times at the task's shapes."""
    return tuple(
        Timing(dict(shape), "modelled", t, t, t, floor_us, 1.0, 2.0, "memory")
        for shape in task.shapes
        for t in [time_us(candidate, shape)]
    )


def code_key(candidate: Kernel) -> str:
    """SAME does not change the code, a comment neither."""
    text = f"{candidate.header.about} {[candidate.params[name] for name in sorted(BEST)]}"
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Prepared:
    """As fitness.evaluate's."""

    code_key: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Spec:
    """A device."""

    kind: str = "simulator"
    gpu: str = "H200"


@dataclass
class FakePool:
    """Knows every verdict. Completion order depends on `workers`; `on_call` sees every call before its result."""

    workers: int = 1
    on_call: Callable[[str, int], None] = lambda _what, _n: None
    broken: Callable[[Kernel], bool] = lambda _kernel: False
    refuted: Callable[[Kernel], bool] = lambda _kernel: False
    calls: list[tuple[str, int]] = field(default_factory=list)
    device: Spec = Spec()

    def worker_pids(self) -> tuple[int, ...]:
        return tuple(range(self.workers))

    def prepare(
        self, task: Task, kernels: Iterable[tuple[int, Kernel]], *, stop: Callable[[], bool] = never
    ) -> Iterator[tuple[int, Prepared | Outcome]]:
        del task, stop
        for n, candidate in self._order(kernels):
            self._call("prepare", n)
            yield n, self._compiled(candidate)

    def judge(
        self,
        task: Task,
        kernels: Iterable[tuple[int, Kernel]],
        depth: Gate = Gate.TIMING,
        incumbent_us: float | None = None,
        *,
        full: bool = False,
        stop: Callable[[], bool] = never,
    ) -> Iterator[tuple[int, Outcome]]:
        del stop
        what = "confirm" if depth is Gate.CONFIRMATION else "judge full" if full else "judge"
        for n, candidate in self._order(kernels):
            self._call(what, n)
            yield n, self._verdict(candidate, task, depth, incumbent_us)

    def count(self, what: str) -> int:
        return sum(name == what for name, _ in self.calls)

    def _call(self, what: str, n: int) -> None:
        self.calls.append((what, n))
        self.on_call(what, n)

    def _order(self, kernels: Iterable[tuple[int, Kernel]]) -> list[tuple[int, Kernel]]:
        jobs = list(kernels)
        if self.workers > 1:
            random.Random(self.workers * 1000 + len(jobs)).shuffle(jobs)
        return jobs

    def _compiled(self, candidate: Kernel) -> Prepared | Outcome:
        if candidate.params["A"] == 32 and candidate.params["B"] == 32:
            finding = Finding(Gate.COMPILE, "too_many_registers", "too large", line=12)
            return CompileFailed(Gate.COMPILE, (finding,), Cost(0.1, 0.0))
        return Prepared(code_key(candidate))

    def _verdict(self, candidate: Kernel, task: Task, depth: Gate, incumbent_us: float | None) -> Outcome:
        key = code_key(candidate)
        if self.broken(candidate) or (depth is Gate.CONFIRMATION and self.refuted(candidate)):
            gate = Gate.CORRECTNESS if depth is Gate.CONFIRMATION else Gate.SMALL_RUN
            return WrongResult(gate, (Finding(gate, "wrong_result", "a tile is missing", line=14),), code_key=key)
        times = timings(candidate, task)
        stage = depth
        if incumbent_us is not None and times[0].time_us > 8 * incumbent_us:
            stage = Gate.TIMING_SCREEN
        return Timed(stage, (), Cost(0.1, 0.2), key, "modelled", times, Resources(32, 1024, 0, 0.5))


class Tune:
    """Moves one param one step up or down."""

    name = "tune"
    arity = 1

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        parent = parents[0].candidate.kernel
        names = list(parent.header.params)
        name = names[int(context.rng.integers(len(names)))]
        values = parent.header.params[name].values
        place = values.index(parent.params[name]) + (1 if context.rng.random() < 0.5 else -1)
        if not 0 <= place < len(values):
            place = len(values) // 2
        return Proposal(parent.with_params({name: values[place]}), f"{name} = {values[place]}")


class Splice:
    """Params of two parents of one family, each taken from one or the other."""

    name = "splice"
    arity = 2

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        one, other = (parent.candidate.kernel for parent in parents)
        if one.source != other.source:
            return Refusal("the parents have no params in common")
        chosen = {name: (one if context.rng.random() < 0.5 else other).params[name] for name in one.params}
        return Proposal(one.with_params(chosen), "half of each parent")


OPERATORS = {"tune": "tests.evo.fakes:Tune", "splice": "tests.evo.fakes:Splice"}


@dataclass
class Watcher:
    """An observer that keeps everything."""

    infos: list[RunInfo] = field(default_factory=list)
    stages: list[State] = field(default_factory=list)
    judged: list[tuple[Judged, State]] = field(default_factory=list)
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    generations: list[GenerationStats] = field(default_factory=list)
    summaries: list[RunSummary] = field(default_factory=list)

    def on_start(self, info: RunInfo) -> None:
        self.infos.append(info)

    def on_stage(self, state: State) -> None:
        self.stages.append(state)

    def on_judged(self, judged: Judged, state: State) -> None:
        self.judged.append((judged, state))

    def on_event(self, kind: str, data: Mapping[str, object]) -> None:
        self.events.append((kind, dict(data)))

    def on_generation(self, stats: GenerationStats, state: State) -> None:
        del state
        self.generations.append(stats)

    def on_end(self, summary: RunSummary) -> None:
        self.summaries.append(summary)
