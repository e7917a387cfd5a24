"""What models cost a run: per model, per operator, per improvement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evo.archive import Archive, Entry
from evo.archive.calls import Spending, spendings
from evo.merit import fitness_us
from evo.progress import usd_text
from mutations.operator import Judged


@dataclass(frozen=True)
class CostLine:
    """One row: whose, what was spent, how many improvements."""

    name: str
    spent: Spending
    improvements: int

    @property
    def per_improvement(self) -> str:
        """What one improvement cost, in dollars where known, else in tokens; "-" without one."""
        if not self.improvements:
            return "-"
        if self.spent.usd is not None:
            return f"${self.spent.usd / self.improvements:.4f}"
        return f"{self.spent.tokens / self.improvements:,.0f} tokens"


@dataclass(frozen=True)
class Costs:
    """The whole of it, and by model and operator ("planner" for what belongs to no child)."""

    total: CostLine
    models: tuple[CostLine, ...]
    operators: tuple[CostLine, ...]


def costs_of(archive: Archive, run_id: str) -> Costs | None:
    """Costs of an archived run; None where no model was asked."""
    spent = list(spendings(archive, run_id))
    if not spent:
        return None
    entries = {entry.plan.n: entry for entry in archive.entries(run_id)}
    judged = {one.candidate.plan.n: one for one in archive.judged(run_id)}
    better = improved(judged)

    def operator_of(n: int | None) -> str:
        entry: Entry | None = entries.get(n) if n is not None else None
        return entry.plan.operator if entry is not None else "planner"

    by_model = [judged[n].candidate.model for n in better]
    by_operator = [judged[n].candidate.plan.operator for n in better if judged[n].candidate.model is not None]
    return Costs(
        CostLine("all", _sum(mine for _, _, mine in spent), sum(model is not None for model in by_model)),
        _lines(((model, mine) for _, model, mine in spent), by_model),
        _lines(((operator_of(n), mine) for n, _, mine in spent), by_operator),
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


def cost_of(archive: Archive, run_id: str, n: int) -> Spending:
    """What one candidate came to."""
    return _sum(mine for _, _, mine in spendings(archive, run_id, n))


def cost_text(spent: Spending) -> str:
    """Such as `5,210 tokens, $0.0123`; a price that is not known is said to be."""
    return f"{spent.tokens:,} tokens, {usd_text(spent.usd)}"


def _sum(parts: Iterable[Spending]) -> Spending:
    return sum(parts, Spending())


def _lines(parts: Iterable[tuple[str, Spending]], better: Sequence[str | None]) -> tuple[CostLine, ...]:
    groups: dict[str, Spending] = defaultdict(Spending)
    for name, mine in parts:
        groups[name] += mine
    return tuple(CostLine(name, mine, better.count(name)) for name, mine in sorted(groups.items()))


def costs_line(costs: Costs) -> str:
    """What models cost, for the end of a run."""
    total, spent = costs.total, costs.total.spent
    failed = f", {spent.failures} without an answer" if spent.failures else ""
    return (
        f"models    {spent.answers} answers{failed}, {cost_text(spent)};"
        f" {total.improvements} improvements, {total.per_improvement} each"
    )


def costs_json(costs: Costs | None) -> dict[str, object]:
    """The same for a program: {"models": {...}}, empty where no model was asked."""
    if costs is None:
        return {}
    return {
        "models": {
            line.name: {"tokens": line.spent.tokens, "usd": line.spent.usd} for line in (costs.total, *costs.models)
        }
    }


def costs_table(costs: Costs) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows for a report: in all, by model, by operator."""
    header = ("what", "answers", "failed", "tokens in", "tokens out", "USD", "improvements", "per improvement")
    groups = [("", (costs.total,)), ("model ", costs.models), ("operator ", costs.operators)]
    rows: list[tuple[str, ...]] = [
        (
            f"{prefix}{line.name}",
            str(line.spent.answers),
            str(line.spent.failures),
            f"{line.spent.tokens_in:,}",
            f"{line.spent.tokens_out:,}",
            "unknown" if line.spent.usd is None else f"{line.spent.usd:.4f}",
            str(line.improvements),
            line.per_improvement,
        )
        for prefix, lines in groups
        for line in lines
    ]
    return header, rows
