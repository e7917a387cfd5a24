"""What a person sees of a run: the first lines, live progress, and the table at the end.

On a terminal progress is a block of four lines that stays in place (`LiveProgress`); anywhere else it is
one plain line per generation and, in long ones, one every 15 seconds (`PlainProgress`). The words are made by
the pure functions here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from evo.observer import BudgetLine, GenerationStats, RunInfo, RunSummary, ShapeRow, Stage, State
from evo.words import counted
from fitness.outcome import Gate
from mutations.operator import Judged

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNITS = {"evaluations": "evaluations", "minutes": "min", "gpu_minutes": "GPU min", "tokens": "tokens", "usd": "USD"}
_DOING = {
    Stage.BASELINE: "timing the baseline",
    Stage.PROPOSE: "proposing",
    Stage.PREPARE: "compiling",
    Stage.JUDGE: "judging",
    Stage.CONFIRM: "confirming the best",
}
_REFRESH_S = 0.25
_PLAIN_S = 15.0


def shape_text(shape: Mapping[str, int]) -> str:
    """{"M": 4096, "N": 16, "K": 4096} -> "M=4096 K=4096 N=16": W first, then X; other names after them."""
    order = [name for name in "MKN" if name in shape] + [name for name in shape if name not in "MKN"]
    return " ".join(f"{name}={shape[name]}" for name in order)


def time_text(time_us: float) -> str:
    """Microseconds to three significant digits, with the unit: "4.53 us", "1.25 ms"."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3g} s"
    if time_us >= 1e3:
        return f"{time_us / 1e3:.3g} ms"
    return f"{time_us:.3g} us"


def _microseconds(time_us: float) -> str:
    """Three digits, never an exponent: "4.53", "13.8", "1,254"."""
    return f"{time_us:.3g}" if time_us < 100 else f"{time_us:,.0f}"


def budget_text(lines: Iterable[BudgetLine]) -> str:
    """What is left: "132 evaluations, 2.9 min"; "no limit" where nothing is capped."""
    parts = [f"{_amount(line.kind, line.left)} {_UNITS[line.kind]}" for line in lines if line.left is not None]
    return ", ".join(parts) or "no limit"


def _amount(kind: str, value: float) -> str:
    return f"{value:,.0f}" if kind in ("evaluations", "tokens") else f"{value:.2f}" if kind == "usd" else f"{value:.1f}"


def failures_text(failed: Mapping[Gate, int]) -> str:
    """Failures by the gate they ended at: "2 compile, 5 small run"; "none" without any."""
    parts = [f"{count} {gate.name.lower().replace('_', ' ')}" for gate, count in sorted(failed.items()) if count]
    return ", ".join(parts) or "none"


def start_lines(info: RunInfo, model_hint: str) -> list[str]:
    """The first lines of a run: device, clock, model, spending cap, archive, task and seeds.

    Args:
        info: what the loop knows.
        model_hint: how to add a model, shown where there is none.
    """
    simulated = "no GPU is used" if info.device == "simulator" else "on the card"
    kept = [seed.name for seed in info.seeds if seed.dropped is None]
    resumed = f", resumed with {counted(info.resumed, 'candidates')}" if info.resumed else ""
    lines = [
        f"run       {info.run_id} ({info.generations} generations of {info.children}, {info.islands} islands{resumed})",
        f"device    {info.device} of {info.gpu} ({info.arch}), {info.workers} workers; {simulated}",
        f"clock     {info.clock}" + (": times come from a cost model, not a card" if info.clock == "modelled" else ""),
        f"model     {info.model or 'none; ' + model_hint}",
        f"cap       {budget_text(info.limits)}",
        f"archive   {info.archive}",
        f"operators {', '.join(f'{name} {weight:g}' for name, weight in info.operators.items())}",
        f"baseline  {info.baseline}",
        f"seeds     {', '.join(kept) or 'none'}",
    ]
    lines += [f"          {seed.name} dropped: {seed.dropped}" for seed in info.seeds if seed.dropped is not None]
    shapes = zip(info.shapes, info.floor_us, strict=True)
    lines += [f"shape     {shape_text(shape)}, floor {time_text(floor)}" for shape, floor in shapes]
    return lines


def state_lines(state: State, clock: str) -> list[str]:
    """Where a run stands, in four lines."""
    doing = _DOING[state.stage]
    if state.stage_total:
        doing += f" {state.stage_done}/{state.stage_total}"
    shared = f"shared {state.shared}, " if state.shared else ""
    return [
        f"generation {state.generation}/{state.generations}, {doing}",
        f"judged {state.judged}, valid {state.valid}, duplicates {state.duplicates}, {shared}refused {state.refused}; "
        f"failed: {failures_text(state.failed)}",
        best_text(state, clock),
        f"{state.per_minute:.0f} per minute; left: {budget_text(state.budget)}",
    ]


def working_line(state: State, clock: str) -> str:
    """Where a run stands within a generation, in one line."""
    doing, _, best, left = state_lines(state, clock)
    return f"{doing}; judged {state.judged} of {state.planned} planned, valid {state.valid}; {best}; {left}"


def best_text(state: State, clock: str) -> str:
    """The best so far in one line."""
    best = state.best
    if best is None:
        return "best: none yet"
    gain = f", {best.gain:.2f}x best seed" if best.gain is not None else ""
    return (
        f"best {time_text(best.time_us)} {clock} (#{best.n}, {best.operator}): {best.speedup:.2f}x baseline{gain}, "
        f"{100 * best.floor_fraction:.0f} % of floor"
    )


def generation_line(stats: GenerationStats, state: State, clock: str) -> str:
    """One generation in one line."""
    median = f"median {time_text(stats.median_us)}" if stats.median_us is not None else "nothing valid"
    return (
        f"generation {stats.generation}/{state.generations}: {stats.valid} of {stats.judged} valid, {median}; "
        f"{best_text(state, clock)}; {state.per_minute:.0f} per minute; left: {budget_text(state.budget)}"
    )


def event_line(kind: str, data: Mapping[str, object]) -> str:
    """An event in one line."""
    if kind == "confirmed":
        return f"confirmed #{data['n']}: {data['speedup']:.2f}x baseline"
    if kind == "refuted":
        findings = data.get("findings")
        why = findings[0]["message"] if isinstance(findings, list) and findings else data.get("outcome", "")
        return f"refuted #{data['n']}: {why}"
    if kind == "seed_failed":
        return f"seed {data['seed']} is not valid: {data['outcome']}, {data['why']}"
    message = data.get("message")
    text = str(message) if message is not None else ", ".join(f"{key} {value}" for key, value in data.items())
    return f"{kind.replace('_', ' ')}: {text}"


class PlainProgress:
    """Lines for a log: the start, each generation and now and then what it is at, what is worth saying aloud.

    Args:
        console: where the lines go.
        model_hint: how to add a model.
        seconds: a monotonic clock.
    """

    def __init__(self, console: Console, model_hint: str, seconds: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.model_hint = model_hint
        self.clock = ""
        self._seconds = seconds
        self._said_at = seconds()

    def line(self, text: str) -> None:
        """Write one line as it is, never wrapped."""
        self._said_at = self._seconds()
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_start(self, info: RunInfo) -> None:
        """Say what is about to happen."""
        self.clock = info.clock
        for text in start_lines(info, self.model_hint):
            self.line(text)

    def on_stage(self, state: State) -> None:
        """One line, if there has been none for a while."""
        if self._seconds() - self._said_at >= _PLAIN_S:
            self.line(working_line(state, self.clock))

    def on_judged(self, judged: Judged, state: State) -> None:
        """One line, if there has been none for a while."""
        del judged
        self.on_stage(state)

    def on_event(self, kind: str, data: Mapping[str, object]) -> None:
        """Say events aloud, migrations excepted."""
        if kind != "migration":
            self.line(event_line(kind, data))

    def on_generation(self, stats: GenerationStats, state: State) -> None:
        """One line."""
        self.line(generation_line(stats, state, self.clock))

    def on_end(self, summary: RunSummary) -> None:
        """Say why it ended."""
        self.line(f"{summary.run_id} {summary.status}: {summary.reason}")


class LiveProgress(PlainProgress):
    """A block of lines that stays in place on a terminal, with generations scrolling above it."""

    def __init__(self, console: Console, model_hint: str) -> None:
        from rich.live import Live

        super().__init__(console, model_hint)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn_at = 0.0

    def on_start(self, info: RunInfo) -> None:
        """Say what is about to happen, then start the block."""
        super().on_start(info)
        self._live.start()

    def on_stage(self, state: State) -> None:
        """Redraw, a few times a second."""
        now = time.monotonic()
        if now - self._drawn_at >= _REFRESH_S:
            from rich.text import Text

            self._drawn_at = now
            self._live.update(Text("\n".join(state_lines(state, self.clock)), style="cyan"), refresh=True)

    def on_judged(self, judged: Judged, state: State) -> None:
        """Redraw, a few times a second."""
        del judged
        self.on_stage(state)

    def on_end(self, summary: RunSummary) -> None:
        """Remove the block."""
        self.close()
        super().on_end(summary)

    def close(self) -> None:
        """Give the terminal back, whatever happened."""
        self._live.stop()


def results_table(rows: Iterable[ShapeRow], summary: RunSummary) -> Table:
    """The final table: one row per shape, then the geometric means."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = f"{summary.run_id}: {summary.clock} times, baseline {summary.baseline}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("shape", no_wrap=True)
    for name in ("baseline us", "best us", "speedup", "gain", "of floor"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("clock", no_wrap=True)
    for row in rows:
        table.add_row(
            shape_text(row.shape),
            _microseconds(row.baseline_us),
            _microseconds(row.best_us),
            f"{row.speedup:.2f}x",
            f"{row.gain:.2f}x",
            f"{100 * row.floor_fraction:.0f} %",
            row.clock,
        )
    if summary.speedup is not None and summary.gain is not None and summary.floor_fraction is not None:
        means = (f"{summary.speedup:.2f}x", f"{summary.gain:.2f}x", f"{100 * summary.floor_fraction:.0f} %")
        table.add_section()
        table.add_row("geometric mean", "", "", *means, summary.clock)
    return table


def usd_text(usd: float | None) -> str:
    """Dollars such as `$0.0123`; a price that is not known is said to be, never shown as nothing."""
    return "$ unknown" if usd is None else f"${usd:.4f}"
