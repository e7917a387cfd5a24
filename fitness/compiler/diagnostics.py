"""Turns the log of NVRTC and ptxas into findings and resource figures."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources

from fitness.compiler.nvrtc import CANDIDATE
from fitness.compiler.ptx import source_line
from fitness.outcome import Finding, Gate

#: At most this many findings are kept of one log; a template error can repeat itself thousands of times.
MAXIMUM_FINDINGS = 20

_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<severity>catastrophic error|error|warning|remark)"
    r"(?: #(?P<code>[\w-]+))?: (?P<message>.*)$"
)
_UNPLACED = re.compile(r"^(?:nvrtc: )?(?P<severity>catastrophic error|error)\s*:\s*(?P<message>.*)$")
_PTXAS = re.compile(
    r"^ptxas (?:(?P<file>[^,\n]*?), line (?P<line>\d+); )?(?P<severity>error|warning|fatal)\s*: (?P<message>.*)$"
)
_ORIGIN = re.compile(rf"at line (\d+)(?: of {re.escape(CANDIDATE)})?")
_UNKNOWN = (
    re.compile(r'identifier "(?P<name>\w+)" is undefined'),
    re.compile(r'has no (?:actual )?member "(?P<name>\w+)"'),
    re.compile(r"(?:Unknown modifier|Unknown symbol|known instruction:) '(?P<name>[.\w:]+)'"),
)


@dataclass(frozen=True)
class Usage:
    """What ptxas says one entry uses (bytes per thread, shared per block)."""

    registers: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0


def findings(log: str, ptx: str = "") -> tuple[Finding, ...]:
    """Errors and warnings of a log, errors first, with the candidate's own lines.

    Args:
        log: NVRTC's program log, ptxas output included.
        ptx: the PTX of the same build, to map ptxas line numbers back to the candidate.
    """
    found = list(dict.fromkeys(_parse(log, ptx)))
    errors = [item for item in found if item.severity == "error"]
    specific = [item for item in errors if item.kind != "ptxas_aborted"]
    rest = [item for item in found if item.severity != "error"]
    return tuple(((specific or errors) + rest)[:MAXIMUM_FINDINGS])


def _parse(log: str, ptx: str) -> Iterator[Finding]:
    lines = log.split("\n")
    for index, raw in enumerate(lines):
        text = raw.strip()
        if match := _DIAGNOSTIC.match(raw):
            yield _from_nvrtc(match, lines[index + 1 : index + 12])
        elif match := _PTXAS.match(text):
            line = source_line(ptx, int(match["line"])) if match["line"] else None
            yield _named(_ptxas(match["severity"], match["message"], line))
        elif match := _UNPLACED.match(text):
            yield Finding(Gate.COMPILE, "compile_error", match["message"])


def _from_nvrtc(match: re.Match[str], following: list[str]) -> Finding:
    message, line = match["message"].strip(), int(match["line"])
    if match["file"] != CANDIDATE:
        message = f"{message} (in {match['file'].rsplit('/', 1)[-1]}, line {line})"
        origin = next((m for text in following if (m := _ORIGIN.search(text)) and CANDIDATE in text), None)
        place = int(origin[1]) if origin else None
    else:
        place = line
    if match["severity"] in ("warning", "remark"):
        code = f" [{match['code']}]" if match["code"] else ""
        return Finding(Gate.COMPILE, "compiler_warning", message + code, place, severity="warning")
    return _named(Finding(Gate.COMPILE, "compile_error", message, place))


def _ptxas(severity: str, message: str, line: int | None) -> Finding:
    if severity == "warning":
        return Finding(Gate.COMPILE, "ptxas_warning", message, line, severity="warning")
    if "Ptx assembly aborted" in message:
        return Finding(Gate.COMPILE, "ptxas_aborted", message, line)
    if "uses too much shared data" in message:
        hint = "declare it dynamic (extern __shared__, header key `shared`) or make the tile smaller"
        return Finding(Gate.COMPILE, "shared_memory", message, line, hint)
    return Finding(Gate.COMPILE, "ptxas_error", message, line)


def _named(finding: Finding) -> Finding:
    """Adds the nearest real name where the error is that a name does not exist."""
    for pattern in _UNKNOWN:
        match = pattern.search(finding.message)
        if match is None or finding.severity != "error":
            continue
        near = nearest(match["name"])
        # An undefined name that resembles no API is the candidate's own slip, not a made-up API.
        if near or match["name"].startswith(("__", "atomic", ".")):
            hint = f"did you mean {near}?" if near else "no CUDA intrinsic or PTX name is close to it"
            return replace(finding, kind="unknown_api", suggestion=hint)
    return finding


@functools.cache
def api_names() -> tuple[str, ...]:
    """CUDA intrinsics, built-in types and PTX instruction words, from `api_names.txt`."""
    text = resources.files("fitness.compiler").joinpath("api_names.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


def nearest(name: str) -> str | None:
    """The real name most like `name`, None where nothing is close."""
    # PTX modifiers are short: one transposed letter of four is a ratio of 0.75.
    cutoff = 0.7 if name.startswith(".") else 0.8
    matches = difflib.get_close_matches(name, api_names(), n=5, cutoff=cutoff)

    def likeness(real: str) -> tuple[float, int]:
        # Between equally similar names, the one that begins alike: atomicAd means atomicAdd, not atomicAnd.
        return difflib.SequenceMatcher(None, real, name).ratio(), _begin_alike(name, real)

    return max(matches, key=likeness, default=None)


def _begin_alike(one: str, other: str) -> int:
    """How many characters they share at the start."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def usage(log: str) -> dict[str, Usage]:
    """Entry name -> resources, from the report of `--ptxas-options=-v`."""
    found: dict[str, Usage] = {}
    entry, subject = "", ""
    for text in log.split("\n"):
        if match := _ENTRY.search(text):
            entry = subject = match[1]
            found[entry] = Usage()
        elif match := _PROPERTIES.search(text):
            subject = match[1]
        elif (match := _STACK.search(text)) and subject == entry and entry:
            local, stores, loads = (int(item) for item in match.groups())
            found[entry] = replace(found[entry], local_bytes=local, spill_store_bytes=stores, spill_load_bytes=loads)
        elif (match := _REGISTERS.search(text)) and entry:
            shared = _SHARED.search(text)
            found[entry] = replace(found[entry], registers=int(match[1]), shared_bytes=int(shared[1]) if shared else 0)
    return found
