"""What models cost a run: per model, per operator, per improvement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from evo.archive import Archive, Entry
from evo.archive.calls import calls_of
from evo.merit import fitness_us
from mutations.llm.recording import TOOL, Call
from mutations.operator import Judged


@dataclass(frozen=True)
class CostLine:
    """One row: requests with an answer, failed requests, tokens, dollars (None: a price is not known), improvements."""

    name: str
    answers: int
    failures: int
    tokens_in: int
    tokens_out: int
    usd: float | None
    improvements: int

    @property
    def tokens(self) -> int:
        """Both directions."""
        return self.tokens_in + self.tokens_out

    @property
    def per_improvement(self) -> str:
        """What one improvement cost, in dollars where known, else in tokens; "-" without one."""
        if not self.improvements:
            return "-"
        if self.usd is not None:
            return f"${self.usd / self.improvements:.4f}"
        return f"{self.tokens / self.improvements:,.0f} tokens"


@dataclass(frozen=True)
class Costs:
    """The whole of it, and by model and operator ("planner" for what belongs to no child)."""

    total: CostLine
    models: tuple[CostLine, ...]
    operators: tuple[CostLine, ...]


def costs_of(archive: Archive, run_id: str) -> Costs | None:
    """Costs of an archived run; None where no model was asked."""
    calls = [call for call in calls_of(archive, run_id) if not call.purpose.startswith(TOOL)]
    if not calls:
        return None
    entries = {entry.plan.n: entry for entry in archive.entries(run_id)}
    judged = {one.candidate.plan.n: one for one in archive.judged(run_id)}
    better = improved(judged)

    def operator_of(call: Call) -> str:
        entry: Entry | None = entries.get(call.n) if call.n is not None else None
        return entry.plan.operator if entry is not None else "planner"

    by_model = {n: judged[n].candidate.model for n in better}
    by_operator = {n: judged[n].candidate.plan.operator for n in better if judged[n].candidate.model is not None}
    return Costs(
        _line("all", calls, sum(model is not None for model in by_model.values())),
        _lines(calls, lambda call: call.model, by_model.values()),
        _lines(calls, operator_of, by_operator.values()),
    )


def improved(judged: Mapping[int, Judged]) -> list[int]:
    """Candidates that are faster than their first parent, in order of n."""
    found = []
    for n, one in sorted(judged.items()):
        parents = one.candidate.plan.parents
        before = fitness_us(judged[parents[0]].outcome) if parents and parents[0] in judged else None
        own = fitness_us(one.outcome)
        if own is not None and before is not None and own < before:
            found.append(n)
    return found


def cost_of(calls: Iterable[Call]) -> CostLine:
    """What the calls of one candidate came to."""
    return _line("", [call for call in calls if not call.purpose.startswith(TOOL)], 0)


def cost_text(line: CostLine) -> str:
    """Such as `5,210 tokens, $0.0123`; without the dollars where a price is not known."""
    dollars = f", ${line.usd:.4f}" if line.usd is not None else ""
    return f"{line.tokens:,} tokens{dollars}"


def _lines(calls: Sequence[Call], key: Callable[[Call], str], better: Iterable[str | None]) -> tuple[CostLine, ...]:
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        groups[key(call)].append(call)
    names = list(better)
    return tuple(_line(name, group, names.count(name)) for name, group in sorted(groups.items()))


def _line(name: str, calls: Sequence[Call], improvements: int) -> CostLine:
    answered = [call for call in calls if call.charged]
    known = [call.usd for call in answered if call.usd is not None]
    return CostLine(
        name=name,
        answers=len(answered),
        failures=len(calls) - len(answered),
        tokens_in=sum(call.tokens_in for call in answered),
        tokens_out=sum(call.tokens_out for call in answered),
        usd=sum(known) if len(known) == len(answered) else None,
        improvements=improvements,
    )


def costs_line(costs: Costs) -> str:
    """What models cost, for the end of a run."""
    total = costs.total
    failed = f", {total.failures} without an answer" if total.failures else ""
    return (
        f"models    {total.answers} answers{failed}, {cost_text(total)};"
        f" {total.improvements} improvements, {total.per_improvement} each"
    )


def costs_json(costs: Costs | None) -> dict[str, object]:
    """The same for a program: {"models": {...}}, empty where no model was asked."""
    if costs is None:
        return {}
    return {"models": {line.name: {"tokens": line.tokens, "usd": line.usd} for line in (costs.total, *costs.models)}}


def costs_table(costs: Costs) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows for a report: in all, by model, by operator."""
    header = ("what", "answers", "failed", "tokens in", "tokens out", "USD", "improvements", "per improvement")
    groups = [("", (costs.total,)), ("model ", costs.models), ("operator ", costs.operators)]
    rows: list[tuple[str, ...]] = [
        (
            f"{prefix}{line.name}",
            str(line.answers),
            str(line.failures),
            f"{line.tokens_in:,}",
            f"{line.tokens_out:,}",
            "unknown" if line.usd is None else f"{line.usd:.4f}",
            str(line.improvements),
            line.per_improvement,
        )
        for prefix, lines in groups
        for line in lines
    ]
    return header, rows
