"""Answers of a model -> reason and source text. Tolerant of form, strict about content; problems are data.

Accepted: a whole file in a fence, in several (the one that is a kernel file), or without any; SEARCH/REPLACE
blocks; a JSON object with `edits` (a list or one) or `code`, or the edits alone. Nothing of an answer is ever run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fitness.kernel import Kernel, KernelError, parse_kernel
from mutations.llm.edits import Edit, EditError, apply_edits
from mutations.llm.messages import Reply

ProblemKind = Literal["empty", "refusal", "truncated", "no_code", "bad_edit", "bad_kernel", "unchanged"]

NO_REASON: Final = "the model gave no reason"
_REASON_LENGTH: Final = 300

_FENCE = re.compile(r"^[ \t]*(?P<mark>```+|~~~+)[^\n]*\n(?P<body>.*?)^[ \t]*(?P=mark)[ \t]*$", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(
    r"^[ \t]*<{5,}[ \t]*SEARCH[^\n]*\n(?P<search>.*?)^[ \t]*={5,}[ \t]*\n"
    r"(?P<replace>.*?)^[ \t]*>{5,}[ \t]*REPLACE[^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_OPEN_BLOCK = re.compile(r"^[ \t]*<{5,}[ \t]*SEARCH", re.MULTILINE)
_REASON = re.compile(
    r"^[#*\s]*reason(?:ing)?\b\**[ \t]*[:\-][ \t]*\**[ \t]*(?P<text>[^\n]+)", re.IGNORECASE | re.MULTILINE
)
_JSON = re.compile(r"^[ \t]*(?P<value>[{\[])", re.MULTILINE)
_DECODER: Final = json.JSONDecoder(strict=False)  # models write raw line breaks into strings
_HEADER = re.compile(r"/\*---[ \t]*\n.*?^[ \t]*---\*/", re.DOTALL | re.MULTILINE)
_DECLINES = re.compile(
    r"\b(?:I(?:'m| am)? (?:cannot|can't|won't|unable to|not able to)|I(?:'m| am) sorry)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Problem:
    """Why an answer gives no kernel; `message` is for the model, in one line."""

    kind: ProblemKind
    message: str


@dataclass(frozen=True)
class Answer:
    """A kernel and the model's reason for it, in one line."""

    kernel: Kernel
    reason: str


@dataclass(frozen=True)
class _Content:
    """What the text of an answer holds: edits, or a whole file."""

    reason: str
    edits: tuple[Edit, ...] = ()
    code: str = ""


def parse_answer(reply: Reply, parent: Kernel | None) -> Answer | Problem:
    """The child an answer describes.

    Args:
        reply: of the model.
        parent: what edits apply to, and whose header and params the child keeps where it gives none of its own.
    """
    if reply.refused:
        return Problem("refusal", one_line(reply.refused))
    if not reply.text.strip():
        return Problem("truncated" if reply.finish == "length" else "empty", "the answer is empty")
    content = _content(reply)
    if isinstance(content, Problem):
        return content
    source = _source(content, parent)
    if isinstance(source, Problem):
        return source
    return _kernel(source, content.reason, parent)


def one_line(text: str, length: int = _REASON_LENGTH) -> str:
    """Text on one line, without control characters, bounded."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= length else words[: length - 3].rstrip() + "..."


def _content(reply: Reply) -> _Content | Problem:
    text = reply.text.replace("\r\n", "\n")
    structured = _from_json(text)
    if structured is not None:
        return structured
    blocks = tuple(Edit(match["search"], match["replace"]) for match in _BLOCK.finditer(text))
    if len(_OPEN_BLOCK.findall(text)) > len(blocks):
        if reply.finish == "length":
            return Problem("truncated", "the answer ends in the middle of an edit; make it shorter")
        return Problem("bad_edit", "an edit lacks its ======= or >>>>>>> REPLACE line")
    if blocks:
        return _Content(_reason(_BLOCK.sub("", text)), edits=blocks)
    code = _code(text)
    if code is None:
        return _without_code(reply, text)
    return _Content(_reason(text.replace(code, "")), code=code)


def _without_code(reply: Reply, text: str) -> Problem:
    if reply.finish == "length" or text.count("```") % 2:
        return Problem("truncated", "the answer was cut off before the code was complete; make it shorter")
    if _DECLINES.search(text):
        return Problem("refusal", one_line(text))
    return Problem("no_code", "the answer holds neither edits nor a kernel file")


def _from_json(text: str) -> _Content | None:
    """The content of a JSON answer, bare, in a fence or amid prose; None where there is no such value."""
    for candidate in (*(match["body"] for match in _FENCE.finditer(text)), text):
        begins = _JSON.search(candidate)
        if begins is None:
            continue
        try:
            data, end = _DECODER.raw_decode(candidate, begins.start("value"))
        except (ValueError, RecursionError):
            continue
        reason = str(data.get("reason") or "") if isinstance(data, Mapping) else ""
        content = _from_data(
            data, one_line(reason) or _reason(text.replace(candidate[begins.start("value") : end], ""))
        )
        if content is not None:
            return content
    return None


def _from_data(data: Any, reason: str) -> _Content | None:
    """Edits, be they `edits` of an object, one object or a list; or `code`."""
    edits = data.get("edits", data) if isinstance(data, Mapping) else data
    edits = edits if isinstance(edits, list) else [edits]
    pairs = [(e.get("search"), e.get("replace")) for e in edits if isinstance(e, Mapping)]
    made = tuple(Edit(old, new) for old, new in pairs if isinstance(old, str) and isinstance(new, str))
    if made and len(made) == len(edits):
        return _Content(reason, edits=made)
    if not isinstance(data, Mapping) or data.get("edits"):
        return None
    code = next((data[key] for key in ("code", "kernel", "source") if isinstance(data.get(key), str)), None)
    return _Content(reason, code=code) if code else None


def _code(text: str) -> str | None:
    """The kernel file among the fences: the last with a header, else the longest with a kernel; or the bare text."""
    fences = [match["body"] for match in _FENCE.finditer(text)]
    for sign in ("/*---", "__global__"):
        found = [body for body in fences if sign in body]
        if found:
            return found[-1] if sign == "/*---" else max(found, key=len)
    if not fences and text.count("```") == 0 and "/*---" in text and "__global__" in text:
        return text[text.index("/*---") :]
    return None


def _reason(text: str) -> str:
    """The line that begins with REASON, else the first line of prose."""
    match = _REASON.search(text)
    if match:
        return one_line(match["text"].strip("* ")) or NO_REASON
    prose = (line.strip() for line in _FENCE.sub("", text).splitlines())
    first = next((line for line in prose if line and not line.startswith(("```", "<", "=", ">", "{", "}"))), "")
    return one_line(first.lstrip("#*- ")) or NO_REASON


def _source(content: _Content, parent: Kernel | None) -> str | Problem:
    if content.edits:
        if parent is None:
            return Problem("bad_edit", "there is no kernel to edit yet; give the whole file")
        try:
            return apply_edits(parent.source, content.edits)
        except EditError as error:
            return Problem("bad_edit", str(error))
    code = content.code.lstrip()
    header = _HEADER.search(code)
    if header is not None and header.start() > 0:  # includes or comments in front of the header: move it up
        code = f"{header[0]}\n{code[: header.start()]}{code[header.end() :]}"
    if header is None and parent is not None and (own := _HEADER.search(parent.source)) is not None:
        code = f"{own[0]}\n{code}"
    return code if code.endswith("\n") else code + "\n"


def _kernel(source: str, reason: str, parent: Kernel | None) -> Answer | Problem:
    try:
        kernel = parse_kernel(source, path="kernel.cu")
    except KernelError as error:
        return Problem("bad_kernel", one_line(str(error), 600))
    if parent is not None:
        kept = {
            name: value
            for name, value in parent.params.items()
            if name in kernel.params and value in kernel.header.params[name].values
        }
        if kernel.feasible({**kernel.params, **kept}):
            kernel = kernel.with_params(kept)
        if kernel == parent:
            return Problem("unchanged", "the answer is the kernel it was given, unchanged")
    return Answer(kernel, reason)
