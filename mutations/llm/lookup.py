"""Full-text search for the `lookup` tool: strategy cards, format layouts, seeds, our reference, the user's folders.

Ranked by BM25 (Robertson and Zaragoza, 2009, "The probabilistic relevance framework", k1 = 1.2, b = 0.75), as
SQLite's FTS5 does; here over texts in memory, because an archive is not ours to write to from a tool.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import seeds
from fitness.task import Task
from mutations.llm import describe
from mutations.llm.quoting import quoted
from mutations.llm.strategies import card

_WORD: Final = re.compile(r"[a-z_][a-z0-9_]*|\d+", re.IGNORECASE)
_K1, _B = 1.2, 0.75
_PASSAGE: Final = 1200
_SUFFIXES: Final = frozenset({".cu", ".cuh", ".h", ".hpp", ".md", ".txt", ".rst", ".py"})
_MOST_FILES, _MOST_BYTES = 2000, 512 * 1024
_LICENCES: Final = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")


@dataclass(frozen=True)
class Passage:
    """A piece of a text; `source` names where it is from, with its licence where one is known."""

    source: str
    text: str


class References:
    """Passages that can be searched."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = tuple(passages)
        self._counts = [Counter(_words(passage.text)) for passage in self._passages]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = sum(self._lengths) / len(self._lengths) if self._lengths else 1.0
        self._holders = Counter(word for counts in self._counts for word in counts)

    def __len__(self) -> int:
        return len(self._passages)

    def search(self, query: str, limit: int = 3) -> tuple[Passage, ...]:
        """The best passages for the words of a query, best first; none that has none of the words."""
        words = set(_words(query))
        scores = [(self._score(place, words), -place) for place in range(len(self._passages))]
        best = sorted((score for score in scores if score[0] > 0), reverse=True)[:limit]
        return tuple(self._passages[-place] for _, place in best)

    def _score(self, place: int, words: set[str]) -> float:
        counts, length = self._counts[place], self._lengths[place]
        total = 0.0
        for word in words:
            if (count := counts[word]) == 0:
                continue
            holders = self._holders[word]
            rarity = math.log(1 + (len(self._passages) - holders + 0.5) / (holders + 0.5))
            total += rarity * count * (_K1 + 1) / (count + _K1 * (1 - _B + _B * length / self._mean))
        return total


def references(task: Task, folders: Sequence[str] = ()) -> References:
    """Everything `lookup` searches for a task.

    Args:
        task: whose formats are described.
        folders: of the user (`[llm] references`): text files below them, each with the folder's licence.

    Raises:
        NotADirectoryError: a folder that is none.
    """
    passages: list[Passage] = []
    for name in describe.usable_formats(task):
        passages += _split(f"layout of format {name}", str(describe.format_facts(task, name)["layout"]))
        passages += _split(f"strategy for {name}", card(name))
    for path in seeds.seed_paths("*/*"):
        passages += _split(f"seed {path.parent.name}/{path.stem} (Apache-2.0)", path.read_text(encoding="utf-8"))
    for page in sorted(reference_folder().glob("*.md")):
        passages += _split(f"reference {page.stem} (Apache-2.0)", page.read_text(encoding="utf-8"))
    for folder in folders:
        passages += _folder(Path(folder))
    return References(passages)


def reference_folder() -> Path:
    """Our own reference pages: within the package where it is installed, else `docs/reference` of the checkout."""
    installed = Path(__file__).with_name("reference")
    return installed if installed.is_dir() else Path(__file__).parents[2] / "docs" / "reference"


def _folder(folder: Path) -> list[Passage]:
    if not folder.is_dir():
        raise NotADirectoryError(f"llm.references: {folder} is no folder")
    root = folder.resolve()
    licence = next((_first_line(root / name) for name in _LICENCES if (root / name).is_file()), "licence unknown")
    passages: list[Passage] = []
    files = sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    for path in files[:_MOST_FILES]:
        inside = path.resolve().is_relative_to(root)  # a link may lead anywhere
        if inside and path.stat().st_size <= _MOST_BYTES:
            name = f"{folder.name}/{path.relative_to(root).as_posix()} ({licence})"
            passages += _split(name, path.read_text(encoding="utf-8", errors="replace"))
    return passages


def _first_line(path: Path) -> str:
    lines = (line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    return next((line for line in lines if line), "licence unknown")[:60]


def _split(source: str, text: str) -> list[Passage]:
    """Passages of whole lines, so that a result fits into a prompt."""
    passages, held = [], ""
    for line in quoted(text).splitlines(keepends=True):
        if held and len(held) + len(line) > _PASSAGE:
            passages.append(Passage(source, held.rstrip()))
            held = ""
        held += line
    return [*passages, Passage(source, held.rstrip())] if held.strip() else passages


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
