"""The population's statistics in words, for the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from evo.merit import fitness_us
from evo.observer import GenerationStats
from mutations.llm.describe import verdict_text
from mutations.llm.quoting import phrase
from mutations.operator import Judged

_SHOWN: Final = 6


def statistics_text(stats: Sequence[GenerationStats], judged: Mapping[int, Judged]) -> str:
    """Generations, operators, formats, the best, and the commonest failures. Times in microseconds."""
    lines = ["Generations (valid of judged, best so far, median):"]
    lines += [
        f"- {one.generation}: {one.valid} of {one.judged}, {_us(one.best_us)}, {_us(one.median_us)}" for one in stats
    ]
    made, valid, formats = Counter[str](), Counter[str](), Counter[str]()
    failures: Counter[str] = Counter()
    for one in judged.values():
        made[one.candidate.plan.operator] += 1
        if fitness_us(one.outcome) is None:
            failures[phrase(verdict_text(one.outcome), 120)] += 1
        else:
            valid[one.candidate.plan.operator] += 1
            formats[one.candidate.kernel.format.name] += 1
    lines.append("Operators (valid of judged): " + ", ".join(f"{n} {valid[n]} of {made[n]}" for n in sorted(made)))
    lines.append("Formats of valid kernels: " + ", ".join(f"{n} {count}" for n, count in sorted(formats.items())))
    lines.append("The best:")
    lines += [f"- #{one.candidate.plan.n} {_best_text(one)}" for one in _best(judged)]
    lines.append("Commonest failures:")
    lines += [f"- {count} x {text}" for text, count in sorted(failures.items(), key=_by_count)[:_SHOWN]]
    return "\n".join(lines)


def _best(judged: Mapping[int, Judged]) -> list[Judged]:
    timed = [(time_us, n) for n, one in judged.items() if (time_us := fitness_us(one.outcome)) is not None]
    return [judged[n] for _, n in sorted(timed)[:3]]


def _best_text(one: Judged) -> str:
    return f"({one.candidate.plan.operator}): {phrase(one.candidate.reason, 120)}: {verdict_text(one.outcome)}"


def _by_count(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _us(time_us: float | None) -> str:
    return f"{time_us:.4g}" if time_us is not None else "-"
