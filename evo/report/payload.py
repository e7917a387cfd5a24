"""What the report's script needs: the tree at once, verdicts and sources in compressed parts, read when asked for."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evo.archive import Archive, facts
from evo.lineage import Lineage, Node
from evo.plots.phylogeny import heights_of
from evo.progress import shape_text, time_text
from evo.report.tables import confirmed_text, verdict_of

_DETAILS_PER_CHUNK = 500
_SOURCE_CHUNK_BYTES = 1_000_000


@dataclass(frozen=True)
class Payload:
    """`data`: JSON for a script element, harmless inside HTML; `chunks`: gzip in base64, by the index `data` names."""

    data: str
    chunks: tuple[str, ...]


def selection(lineage: Lineage, limit: int) -> set[int]:
    """The numbers to show: all, or at most about `limit`.

    Of a larger run: all ancestors of the answer, then the fastest with their lines, then the first ones.
    """
    archive, run_id = lineage.archive, lineage.run.id
    first = dict(facts.first_parents(archive, run_id))
    if len(first) <= limit:
        return set(first)
    best = lineage.best()
    chosen = set(facts.line(archive, run_id, best.n, all_parents=True)) if best is not None else set()
    for n in itertools.chain(facts.fastest(archive, run_id, confirmed=False, limit=limit // 2), first):
        line: int | None = n
        while line is not None and line not in chosen:
            chosen.add(line)
            line = first[line]
        if len(chosen) >= limit:
            break
    return chosen


def payload(lineage: Lineage, nodes: Sequence[Node], best: int | None, live: str | None) -> Payload:
    """Everything about `nodes` for the script.

    Args:
        lineage: of the run.
        nodes: what is shown, in order of n.
        best: the answer.
        live: stamp of the archive where a server shows the page, None for a file.
    """
    archive, run_id = lineage.archive, lineage.run.id
    shown = {node.n for node in nodes}
    genomes = {row["n"]: row for row in facts.genomes(archive, run_id, shown)}
    chunks: list[str] = []
    source_ids = list(dict.fromkeys(genomes[n]["source_id"] for n in sorted(genomes)))
    source_chunk = _add_sources(chunks, archive, source_ids)
    details = _add_details(chunks, lineage, nodes, genomes)
    first = dict(facts.first_parents(archive, run_id))
    parents = [-1 if (parent := first[node.n]) is None else parent for node in nodes]
    heights = heights_of(np.array([node.n for node in nodes], np.int64), np.array(parents, np.int64)).tolist()
    place = {source: index for index, source in enumerate(source_ids)}
    data = {
        "live": live,
        "best": best,
        "details": details,
        "detailsPerChunk": _DETAILS_PER_CHUNK,
        "sources": source_chunk,
        "nodes": [
            {
                "n": node.n,
                "index": index,
                "generation": node.plan.generation,
                "height": heights[index],
                "operator": node.plan.operator,
                "model": node.model,
                "parents": list(node.plan.parents),
                "speedup": node.speedup,
                "verdict": verdict_of(node),
                "reason": node.reason,
                "source": place[genomes[node.n]["source_id"]] if node.n in genomes else None,
            }
            for index, node in enumerate(nodes)
        ],
    }
    return Payload(_harmless(data), tuple(chunks))


def _add_sources(chunks: list[str], archive: Archive, source_ids: Sequence[str]) -> list[int]:
    """Pack sources, about a megabyte to a chunk; returns the chunk of each."""
    chunk_of: list[int] = []
    pending: dict[int, str] = {}
    size = 0
    for index, (_, text) in enumerate(facts.sources(archive, source_ids)):
        pending[index] = text
        chunk_of.append(len(chunks))
        size += len(text)
        if size >= _SOURCE_CHUNK_BYTES:
            chunks.append(_packed(pending))
            pending, size = {}, 0
    if pending:
        chunks.append(_packed(pending))
    return chunk_of


def _add_details(
    chunks: list[str], lineage: Lineage, nodes: Sequence[Node], genomes: dict[int, facts.Row]
) -> list[int]:
    """Pack verdicts, times and findings; returns the chunks in order."""
    archive, run_id = lineage.archive, lineage.run.id
    shown = [node.n for node in nodes]
    baseline = lineage.baseline[1] if lineage.baseline else ()
    times: dict[int, list[list[str]]] = {}
    for row in facts.timings(archive, run_id, shown):
        base = baseline[row["position"]].time_us if row["position"] < len(baseline) else None
        times.setdefault(row["n"], []).append(_time_cells(row, base))
    findings = dict(facts.findings(archive, run_id, shown))
    numbers = []
    for start in range(0, len(nodes), _DETAILS_PER_CHUNK):
        part = {
            node.n: _detail(node, genomes.get(node.n), times.get(node.n, []), findings.get(node.n, []))
            for node in nodes[start : start + _DETAILS_PER_CHUNK]
        }
        numbers.append(len(chunks))
        chunks.append(_packed(part))
    return numbers


def _detail(
    node: Node, genome: facts.Row | None, times: list[list[str]], findings: list[dict[str, Any]]
) -> dict[str, object]:
    row = node.row
    verdict = verdict_of(node)
    if node.stage is not None and node.time_us is None:
        verdict += f" at gate {node.stage.name.lower().replace('_', ' ')}"
    return {
        "verdict": verdict,
        "confirmed": confirmed_text(node.confirmation) if node.confirmation else None,
        "island": node.plan.island,
        "reused": node.reused_from,
        "params": json.loads(genome["params"]) if genome else {},
        "registers": row["registers"],
        "shared": _with_unit(row["shared_bytes"], "bytes per block"),
        "spilled": _with_unit(row["spill_bytes"], "bytes per thread"),
        "occupancy": None if row["occupancy"] is None else f"{100 * row['occupancy']:.0f} %",
        "compile": _with_unit(row["compile_s"], "s"),
        "evaluate": _with_unit(row["evaluate_s"], "s"),
        "times": times,
        "findings": [
            [_text(found.get(name)) for name in ("kind", "gate", "line", "message", "suggestion")] for found in findings
        ],
    }


def _time_cells(row: facts.Row, baseline_us: float | None) -> list[str]:
    return [
        shape_text(json.loads(row["shape"])),
        time_text(row["time_us"]),
        f"{baseline_us / row['time_us']:.2f}×" if baseline_us is not None else "",
        f"{100 * row['floor_us'] / row['time_us']:.0f} %",
        f"{row['tflops']:.1f}",
        f"{row['gb_per_s']:,.0f}",
        _text(row["limiter"]),
    ]


def _with_unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.3g} {unit}" if isinstance(value, float) else f"{value:,} {unit}"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _packed(value: object) -> str:
    """JSON, gzip, base64; the same bytes each time."""
    return base64.b64encode(gzip.compress(json.dumps(value, separators=(",", ":")).encode(), 6, mtime=0)).decode()


def _harmless(value: object) -> str:
    """JSON without a sign that HTML knows: nothing in it can end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
