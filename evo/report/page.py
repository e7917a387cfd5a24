"""The report of a run: one HTML file that needs no network, reads without JavaScript and explores with it.

Texts of an archive are escaped by the template engine, or reach the page's script as JSON and become text nodes;
the page's content security policy allows that one script, by its hash, and no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from evo import ending
from evo.archive import Archive, RunRecord, facts
from evo.archive.counts import Counts, counts
from evo.errors import EvoError
from evo.lineage import Lineage, Node, all_shares
from evo.merit import floor_fraction
from evo.plots.picture import as_svg
from evo.provenance import version
from evo.report import series, tables
from evo.report.history import title_of
from evo.report.payload import payload, selection
from evo.report.toml import as_toml

SHOWN = 5000
"""Candidates a report shows at most; of a larger run the answer's ancestors, the fastest and the first."""

_ASSETS = Path(__file__).with_name("assets")
_PLOTS = ("speedup", "shapes", "evaluations", "validity", "credit", "pareto", "roofline")
_SECTIONS = (
    ("results", "Result"),
    ("plots", "Plots"),
    ("best", "How the best came about"),
    ("lineage", "Lineage"),
    ("operators", "Operators and costs"),
    ("failures", "Failures"),
    ("origin", "Where it comes from"),
)
_CLOCKS = {
    "modelled": "They come from a cost model of the card: good for ranking kernels, no claim about a card.",
    "measured": "They were taken on the card.",
}


@dataclass(frozen=True)
class Figure:
    """One key number."""

    name: str
    value: str
    note: str = ""


def page(archive: Archive, run: RunRecord, *, limit: int = SHOWN, live: str | None = None) -> str:
    """The report as HTML.

    Args:
        archive: holds the run.
        run: its record.
        limit: candidates shown at most.
        live: stamp of the archive where a server shows the page; then the page asks the server for newer ones.

    Raises:
        ArchiveError: the archive cannot be read.
    """
    with archive.snapshot():  # its numbers agree, also of a run that goes on
        return _page(archive, run, limit, live)


def _page(archive: Archive, run: RunRecord, limit: int, live: str | None) -> str:
    lineage = Lineage(archive, run)
    chosen = selection(lineage, limit)
    nodes = list(lineage.nodes(chosen))
    best = lineage.best()
    packed = payload(lineage, nodes, best.n if best else None, live)
    script = (_ASSETS / "report.js").read_text(encoding="utf-8")
    facts_ = _facts(archive, run, lineage, nodes, best)
    plots = _plots(archive, run)
    there = {"plots": bool(plots), "best": best is not None}
    return str(
        _template().render(
            p=facts_,
            plots=plots,
            sections=[section for section in _SECTIONS if there.get(section[0], True)],
            policy=_policy(script, live=live is not None),
            css=Markup((_ASSETS / "report.css").read_text(encoding="utf-8")),
            js=Markup(script),
            data=Markup(packed.data),
            chunks=packed.chunks,
            version=version(),
        )
    )


@cache
def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string((_ASSETS / "report.html.j2").read_text(encoding="utf-8"))


def _policy(script: str, *, live: bool) -> str:
    """What the browser may do for the page: our script, inline styles, nothing from elsewhere."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = ["default-src 'none'", f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'", "img-src data:"]
    rules += ["connect-src 'self'"] if live else []
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _facts(archive: Archive, run: RunRecord, lineage: Lineage, nodes: list[Node], best: Node | None) -> dict[str, Any]:
    operators, models = all_shares(archive, run.id)
    counted = counts(archive, run.id)
    total = counted.candidates
    baselines = list(lineage.baselines)
    costs = facts.seconds(archive, run.id)
    reason, traceback = ending.how(archive, run)
    return {
        "run": run,
        "title": title_of(run),
        "status": f"The run {ending.sentence(run.status, reason)}.",
        "traceback": traceback,
        "clock_note": _CLOCKS.get(run.clock, ""),
        "figures": _figures(lineage, best, counted),
        "shapes": _shapes(archive, run, lineage, baselines, best),
        "shapes_note": f"The answer is #{best.n}, {tables.confirmed_text(best.confirmation)}." if best else "",
        "best": _best(best),
        "path": tables.path_table(lineage.path(best.n)) if best else None,
        "candidates": tables.candidate_table(nodes),
        "shown_note": _shown(len(nodes), total),
        "operators": tables.share_table(operators, "operator", run.clock),
        "models": tables.share_table([m for m in models if m.name != "none"], "model", run.clock),
        "costs": tables.cost_table(run, operators, *costs),
        "failures": tables.failure_table(archive, run.id),
        "environment": tables.environment_table(run, baselines[0][0] if baselines else "not timed"),
        "experiment": as_toml(run.experiment),
        "reproduce_note": _reproduce(run),
    }


def _figures(lineage: Lineage, best: Node | None, counted: Counts) -> list[Figure]:
    figures = []
    if best is not None and best.speedup is not None and lineage.baseline is not None:
        figures.append(Figure("speedup", f"{best.speedup:.2f}×", f"over {lineage.baseline[0]}"))
        seeds = [row["time_us"] for row in facts.seeds(lineage.archive, lineage.run.id) if row["time_us"] is not None]
        if seeds and lineage.baseline_us is not None:
            figures.append(
                Figure("gain", f"{best.speedup * min(seeds) / lineage.baseline_us:.2f}×", "over the best seed")
            )
        figures.append(Figure("of the roofline floor", f"{100 * floor_fraction(best.timings):.0f} %"))
        figures.append(Figure("answer", f"#{best.n}", tables.confirmed_text(best.confirmation)))
    figures.append(Figure("candidates", f"{counted.candidates:,}", counted.valid_text))
    return figures


def _shapes(
    archive: Archive,
    run: RunRecord,
    lineage: Lineage,
    baselines: list[tuple[str, Any]],
    best: Node | None,
) -> tables.Table:
    if best is None or not baselines:
        return tables.Table("", (), ())
    timed = [(row["fitness_us"], row["n"]) for row in facts.seeds(archive, run.id) if row["fitness_us"] is not None]
    seed = lineage.node(min(timed)[1]).timings if timed else ()
    return tables.shape_table(run.clock, baselines, seed, best.timings)


def _best(best: Node | None) -> dict[str, object] | None:
    if best is None or best.kernel is None:
        return None
    params = ", ".join(f"{name} = {value}" for name, value in best.kernel.params.items()) or "none"
    return {"n": best.n, "params": params, "source": best.kernel.source}


def _shown(shown: int, total: int) -> str:
    if shown == total:
        return f"All {total:,} candidates."
    return f"{shown:,} of {total:,} candidates: the answer's ancestors, the fastest, the first. The archive has all."


def _reproduce(run: RunRecord) -> str:
    limits = run.experiment.get("budget") or {}
    timed = isinstance(limits, dict) and limits.get("minutes")
    note = "The same file, seed and evo give the same candidates and modelled times, with any number of workers"
    return note + ("; a budget of minutes may end the run earlier on a slower machine." if timed else ".")


def _plots(archive: Archive, run: RunRecord) -> list[dict[str, str]]:
    """The pictures there are numbers for, as SVG."""
    made = []
    for kind in _PLOTS:
        try:
            picture = series.KINDS[kind].make(archive, [run])
        except EvoError:  # no numbers for this kind: the section shows the others
            continue
        about = series.KINDS[kind].about.partition(";")[0]  # what comes then is of several runs
        made.append({"about": about, "svg": Markup(_labelled(as_svg(picture), kind, about))})
    return made


def _labelled(svg: str, kind: str, about: str) -> str:
    """The picture with a name for screen readers and ids of its own."""
    own = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{kind}-", svg)
    return own.replace("<svg ", f'<svg role="img" aria-label="{Markup.escape(about)}" ', 1)
