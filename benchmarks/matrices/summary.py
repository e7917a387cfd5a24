"""What `benchmarks.matrices.measure` found: `python -m benchmarks.matrices.summary OUT.jsonl ... [--plot DIR]`.

Geometric means of the speedup over the fastest cuSPARSE algorithm by N, how often seeds win, and the distribution. Of a
sweep: the mean time of each setting against the seed's fastest one at each matrix and N.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Distribution:
    """Speedups at one N, ascending, by matrix."""

    columns: int
    speedups: tuple[tuple[str, float], ...]

    @property
    def mean(self) -> float:
        """Geometric mean."""
        return math.exp(sum(math.log(value) for _, value in self.speedups) / len(self.speedups))


def latest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each matrix and N; what broke the card there is among what its row leaves out."""
    found = {(row["matrix"], row["N"]): row for row in rows if "broken" not in row and "sweep" not in row}
    return list(found.values())


def sweep_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Settings by seed, the best first: times the fastest one of each product, geometric mean, over all and by N."""
    times: dict[str, dict[tuple[str, int], dict[str, float]]] = collections.defaultdict(dict)
    for row in rows:
        if "sweep" in row and "us" in row:
            words = " ".join(f"{name}={value}" for name, value in row["params"].items()) or "defaults"
            times[row["sweep"]].setdefault((row["matrix"], row["N"]), {})[words] = float(row["us"])
    text = []
    for seed, products in times.items():
        logs: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
        for (_, n), found in products.items():
            for words, us in found.items():
                logs[words].append((n, math.log(us / min(found.values()))))
        columns = sorted({n for _, n in products})
        text.append(f"{seed}: times its fastest setting, mean over {len(products)} products, then by N = {columns}")
        for words, pairs in sorted(logs.items(), key=lambda item: _mean(log for _, log in item[1])):
            by_n = " ".join(f"{_mean(log for at, log in pairs if at == n):.3f}" for n in columns)
            fewer = "" if len(pairs) == len(products) else f" ({len(pairs)} products)"
            text.append(f"  {_mean(log for _, log in pairs):.3f}  {by_n}  {words}{fewer}")
    return text


def _mean(logs: Iterable[float]) -> float:
    """Geometric mean of what has these logarithms; NaN of none."""
    found = list(logs)
    return math.exp(sum(found) / len(found)) if found else math.nan


def distributions(rows: Sequence[dict[str, Any]]) -> list[Distribution]:
    """By N, of the rows that have a speedup."""
    found: dict[int, list[tuple[str, float]]] = collections.defaultdict(list)
    for row in rows:
        if "speedup" in row:
            found[row["N"]].append((row["matrix"], float(row["speedup"]["value"])))
    return [Distribution(n, tuple(sorted(pairs, key=lambda pair: pair[1]))) for n, pairs in sorted(found.items())]


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The summary for a person."""
    found = distributions(rows)
    text = []
    for each in found:
        values = [value for _, value in each.speedups]
        wins = sum(value > 1 for value in values)
        text.append(
            f"N = {each.columns:<4} geometric mean {each.mean:.3f}x over {len(values)} matrices, faster on {wins}; "
            f"least {values[0]:.2f}x ({each.speedups[0][0]}), most {values[-1]:.2f}x ({each.speedups[-1][0]})"
        )
    every = [value for each in found for _, value in each.speedups]
    if every:
        mean = math.exp(sum(map(math.log, every)) / len(every))
        text.append(f"all: geometric mean {mean:.3f}x over {len(every)} products")
    winners = collections.Counter(row["best_seed"] for row in rows if row.get("best_seed"))
    text += [f"fastest seed {name}: {count}" for name, count in winners.most_common()]
    rivals = collections.Counter(row["best_cusparse"] for row in rows if row.get("best_cusparse"))
    text += [f"fastest cuSPARSE {name}: {count}" for name, count in rivals.most_common()]
    alone = [f"{row['matrix']} N={row['N']}" for row in rows if "speedup" not in row]
    if alone:
        text.append(f"not compared: {len(alone)} products: {', '.join(alone[:6])}{', ...' if len(alone) > 6 else ''}")
    wrong = sorted({(name, why) for row in rows for name, why in row["left_out"].items() if why.startswith("wrong")})
    return text + [f"WRONG {name}: {why}" for name, why in wrong]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the summary, draw the distribution."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--plot", type=Path, metavar="DIR")
    asked = parser.parse_args(arguments)
    every = [json.loads(line) for out in asked.out for line in out.read_text(encoding="utf-8").splitlines()]
    rows = latest(every)
    print("\n".join([*(lines(rows) if rows else ()), *sweep_lines(every)]))
    if asked.plot and distributions(rows):
        from evo.plots.picture import save

        for path in save(SpeedupPicture(tuple(distributions(rows))), asked.plot, "matrices"):
            print(path)


@dataclass(frozen=True)
class SpeedupPicture:
    """Share of the matrices with at most a speedup, a line for each N."""

    found: tuple[Distribution, ...]

    @property
    def height_in(self) -> float:
        """Of one plot."""
        return 2.6

    def draw(self, figure: Any) -> None:
        """Draw the cumulative distributions."""
        from evo.plots.picture import COLOURS, DASHES, axes_of, factor_axis, legend_below

        axes = axes_of(figure, "best seed against the best cuSPARSE algorithm", "speedup", "share of matrices")
        axes.set_xscale("log", base=2)
        for i, each in enumerate(self.found):
            values = [value for _, value in each.speedups]
            shares = [(j + 1) / len(values) for j in range(len(values))]
            axes.step(values, shares, where="post", color=COLOURS[i], linestyle=DASHES[i], label=f"N = {each.columns}")
        every = [value for each in self.found for _, value in each.speedups]
        factor_axis(axes.xaxis, min(*every, 0.9), max(*every, 1.1))
        axes.axvline(1.0, linewidth=0.5, color="black")
        legend_below(figure, axes)

    def table(self) -> Any:
        """Every speedup."""
        from evo.plots.picture import Table

        return Table(
            ("columns", "matrix", "speedup"),
            tuple((each.columns, name, value) for each in self.found for name, value in each.speedups),
        )


if __name__ == "__main__":
    main()
