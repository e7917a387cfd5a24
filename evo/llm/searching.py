"""What the `archive_search` tool finds: valid kernels whose reason or source has the words, then similar tasks'."""

from __future__ import annotations

from typing import Final

from evo.archive import Archive
from evo.ledger import ArchiveLibrary
from fitness.task import Task
from mutations.llm.describe import params_text, verdict_text
from mutations.llm.quoting import phrase, quoted
from mutations.operator import Judged

_FOUND: Final = 3
_LOOKED_AT: Final = 20
_SOURCE: Final = 2500


def archive_texts(archive: Archive, library: ArchiveLibrary, task: Task, words: str) -> list[str]:
    """A few kernels as text, best match first."""
    hits = archive.find(words, _LOOKED_AT)
    judged: dict[str, dict[int, Judged]] = {}
    texts: list[str] = []
    for hit_run, n, _ in hits:
        if hit_run not in judged:
            judged[hit_run] = {one.candidate.plan.n: one for one in archive.judged(hit_run)}
        one = judged[hit_run].get(n)
        if one is not None and one.outcome.valid and len(texts) < _FOUND:
            texts.append(_text(f"{hit_run}/{n}", one))
    if not texts:
        similar = library.ranked(task, 1)
        texts = [_text(f"{run}/{one.candidate.plan.n} (a similar task)", one) for run, one in similar]
    return texts


def _text(name: str, one: Judged) -> str:
    source = quoted(one.candidate.kernel.source)[:_SOURCE]
    facts = f"{phrase(one.candidate.reason)}; {verdict_text(one.outcome)}; params {params_text(one.candidate.kernel)}"
    return f"{name}: {facts}\n{source}"
