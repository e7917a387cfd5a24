"""Reads what the evaluation needs of a PTX file: entry signatures, launch bounds, source lines.

The simulator has its own, complete parser.
"""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass

from fitness.compiler.nvrtc import CANDIDATE
from fitness.devices.device import Parameter

#: How the candidate's own file is called in PTX handed to devices and written to run folders.
CANDIDATE_NAME = "candidate.cu"

_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^)]*)\))?(?P<directives>[^{;]*)[{;]")
_PARAMETER = re.compile(
    r"\.param(?:\s+\.align\s+\d+)?\s+\.(?P<type>[a-z]\w*)(?P<ptr>\s+\.ptr)?(?:\s+\.[a-z]+)*?(?:\s+\.align\s+\d+)?"
    r"\s+(?P<name>[\w$%]+)(?:\[(?P<count>\d+)\])?"
)
_BOUND = re.compile(r"\.(?P<what>maxntid|reqntid|reqnctapercluster)\s+(?P<dims>\d+(?:\s*,\s*\d+)*)")
_FILE = re.compile(r'^(?P<head>\s*\.file\s+(?P<index>\d+)\s+)"(?P<path>[^"]*)"(?P<tail>.*)$', re.MULTILINE)
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+\d+")
_INLINED = re.compile(r"inlined_at\s+(\d+)\s+(\d+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Signature:
    """An entry's parameters and the block sizes it was compiled for.

    `max_threads`: product of .maxntid or .reqntid (1024 without); `required_block`: .reqntid or None;
    `required_cluster`: .reqnctapercluster (`__cluster_dims__`) or None.
    """

    parameters: tuple[Parameter, ...]
    max_threads: int = 1024
    required_block: tuple[int, int, int] | None = None
    required_cluster: tuple[int, int, int] | None = None


def signatures(ptx: str) -> dict[str, Signature]:
    """Entry name -> signature, in the order of the file."""
    found = {}
    for match in _ENTRY.finditer(_COMMENT.sub("", ptx)):
        parameters = tuple(_parameter(item) for item in _PARAMETER.finditer(match["parameters"] or ""))
        max_threads, required, cluster = 1024, None, None
        for bound in _BOUND.finditer(match["directives"]):
            dims = [int(item) for item in bound["dims"].split(",")] + [1, 1]
            if bound["what"] == "reqnctapercluster":
                cluster = (dims[0], dims[1], dims[2])
                continue
            max_threads = min(max_threads, dims[0] * dims[1] * dims[2])
            if bound["what"] == "reqntid":
                required = (dims[0], dims[1], dims[2])
        found[match["name"]] = Signature(parameters, max_threads, required, cluster)
    return found


def _parameter(match: re.Match[str]) -> Parameter:
    kind = match["type"]
    width = 1 if kind == "pred" else int(re.sub(r"\D", "", kind.split("x")[0])) // 8
    return Parameter(match["name"], kind, width * int(match["count"] or 1), match["ptr"] is not None)


def normalised(ptx: str, include_folder: str) -> str:
    """The same PTX with paths of this machine taken out of its `.file` lines.

    The candidate is called "candidate.cu", toolkit headers by their name as one includes them.
    """

    def rename(match: re.Match[str]) -> str:
        path = match["path"]
        if path.lstrip("/") == CANDIDATE.lstrip("/"):
            path = CANDIDATE_NAME
        elif path.startswith(include_folder):
            path = path[len(include_folder) :].lstrip("/")
        return f'{match["head"]}"{path}"{match["tail"]}'

    return _FILE.sub(rename, ptx)


def source_line(ptx: str, ptx_line: int) -> int | None:
    """The candidate's line that produced line `ptx_line` (1-based) of the PTX, None where none is known.

    For an instruction inlined from a header, the candidate's line that called it.
    """
    candidates = {
        int(m["index"]) for m in _FILE.finditer(ptx) if m["path"].lstrip("/") in (CANDIDATE.lstrip("/"), CANDIDATE_NAME)
    }
    for text in reversed(ptx.split("\n")[:ptx_line]):
        match = _LOC.match(text)
        if match is None:
            continue
        if int(match[1]) in candidates:
            return int(match[2])
        outer = _INLINED.search(text)
        return int(outer[2]) if outer and int(outer[1]) in candidates else None
    return None


_BODY = re.compile(r"\.(?P<kind>entry|func)\b")
# Atomics and reductions outside shared memory, and the acquire/volatile loads a grid barrier or a chained
# scan spins on.
_COMMUNICATION = re.compile(
    r"(?:^|\s)(?:atom|red|multimem\.red)(?![\w.]*\.shared)\.[\w.:]+\s"
    r"|(?:^|\s)ld\.(?:volatile|acquire|relaxed)(?![\w.]*\.(?:shared|local|param))[\w.:]*\s"
)


@functools.lru_cache(maxsize=64)
def communicates(ptx: str, entry: str) -> bool:
    """True if an entry (or any function of the file, which it may call) can exchange data between blocks."""
    text = _COMMENT.sub("", ptx)
    starts = [match.start() for match in _BODY.finditer(text)] + [len(text)]
    for start, end in itertools.pairwise(starts):
        body = text[start:end]
        name = _ENTRY.match(body)
        if (name is None or name["name"] == entry) and _COMMUNICATION.search(body):
            return True
    return False
