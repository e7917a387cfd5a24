"""Functions a model may call while it makes a child. Every result is bounded text; every call is recorded.

`compile`, `simulate` and `trace` run the kernel in evo's isolated workers with the limits of a candidate; `lookup` and
`archive_search` only read. None takes a path, none writes anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fitness.kernel import Kernel, KernelError, parse_kernel
from fitness.outcome import Gate, Timed
from mutations.llm import describe
from mutations.llm.access import Access, ToolName
from mutations.llm.messages import ToolCall
from mutations.llm.parse import one_line
from mutations.llm.quoting import quoted

_LONGEST: Final = 6000

Arguments = Mapping[str, Any]


def definitions(names: tuple[ToolName, ...]) -> tuple[Mapping[str, Any], ...]:
    """Function definitions of the tools in use, for the request."""
    return tuple(
        {"type": "function", "function": {"name": name, "description": tool.about, "parameters": _schema(tool)}}
        for name, tool in _TOOLS.items()
        if name in names
    )


def call_tool(call: ToolCall, access: Access) -> str:
    """The result of a call, as text for the model; a call that makes no sense says so."""
    if call.name not in access.settings.tools:
        return f"there is no tool {one_line(call.name, 40)}; there are: {', '.join(access.settings.tools) or 'none'}"
    name: ToolName = call.name
    tool = _TOOLS[name]
    try:
        given = json.loads(call.arguments or "{}", strict=False)
    except (ValueError, RecursionError) as error:
        return f"the arguments are not JSON: {error}"
    wrong = _wrong(given, tool)
    if wrong:
        return wrong
    arguments = {parameter: given[parameter] for parameter in tool.parameters if parameter in given}
    return access.asker.tool(name, json.dumps(arguments), lambda: _bounded(tool.run(arguments, access)))


def _wrong(given: object, tool: _Tool) -> str:
    """What is wrong with the arguments of a call, for the model; empty where nothing is."""
    for parameter, kind in tool.parameters.items():
        value = given.get(parameter) if isinstance(given, Mapping) else None
        if value is None and kind is _PLACE:
            continue
        if kind is _TEXT and not isinstance(value, str):
            return f'the arguments must be an object with the text "{parameter}"'
        if kind is _LINE and not _is_number(value, 1):
            return f'"{parameter}" must be a whole number from 1'
        if kind is _PLACE and not (
            isinstance(value, list) and len(value) == 3 and all(_is_number(n, 0) for n in value)
        ):
            return f'"{parameter}" must be three whole numbers from 0: [x, y, z]'
    return ""


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def _compile(arguments: Arguments, access: Access) -> str:
    return _judged(arguments["source"], access, Gate.COMPILE)


def _simulate(arguments: Arguments, access: Access) -> str:
    return _judged(arguments["source"], access, Gate.TIMING)


def _trace(arguments: Arguments, access: Access) -> str:
    kernel = _kernel(arguments["source"])
    if isinstance(kernel, str):
        return kernel
    thread, block = (tuple(arguments.get(name) or (0, 0, 0)) for name in ("thread", "block"))
    return access.services.trace(kernel, arguments["line"], thread, block)


def _judged(source: str, access: Access, depth: Gate) -> str:
    kernel = _kernel(source)
    if isinstance(kernel, str):
        return kernel
    outcome = access.services.judge(kernel, depth)
    passed = isinstance(outcome, Timed)
    lines = [f"passed up to gate {outcome.stage.name.lower()}" if passed else describe.verdict_text(outcome)]
    if passed and depth >= Gate.TIMING:
        lines += describe.timing_lines(outcome)
    return "\n".join([*lines, *describe.finding_lines(outcome, kernel)])


def _kernel(source: str) -> Kernel | str:
    try:
        return parse_kernel(source.lstrip(), path="kernel.cu")
    except KernelError as error:
        return one_line(str(error), 600)


def _lookup(arguments: Arguments, access: Access) -> str:
    if access.references is None:
        return "there is nothing to look up"
    found = access.references.search(arguments["words"])
    return "\n\n".join(f"{entry.source}:\n{entry.text}" for entry in found) or "nothing found"


def _archive_search(arguments: Arguments, access: Access) -> str:
    return "\n\n".join(access.services.search_archive(arguments["words"])) or "nothing found"


def _bounded(text: str) -> str:
    text = quoted(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 20] + "\n(cut off)"


def _schema(tool: _Tool) -> Mapping[str, Any]:
    required = [name for name, kind in tool.parameters.items() if kind is not _PLACE]
    return {"type": "object", "properties": dict(tool.parameters), "required": required}


_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_LINE: Final[Mapping[str, Any]] = {"type": "integer"}
_PLACE: Final[Mapping[str, Any]] = {"type": "array", "items": {"type": "integer"}, "description": "[x, y, z]"}


@dataclass(frozen=True)
class _Tool:
    about: str
    parameters: Mapping[str, Mapping[str, Any]]
    run: Callable[[Arguments, Access], str]


_TOOLS: Final[Mapping[ToolName, _Tool]] = {
    "compile": _Tool(
        "Compile a whole kernel file; gives errors with their lines, or what it uses.", {"source": _TEXT}, _compile
    ),
    "simulate": _Tool(
        "Check a whole kernel file for right results, and time it; gives the profile.", {"source": _TEXT}, _simulate
    ),
    "trace": _Tool(
        "Run a whole kernel file at a small shape; gives values and addresses of one thread at one source line.",
        {"source": _TEXT, "line": _LINE, "thread": _PLACE, "block": _PLACE},
        _trace,
    ),
    "lookup": _Tool("Search the reference and the kernel library for words.", {"words": _TEXT}, _lookup),
    "archive_search": _Tool("Search verified kernels of earlier runs for words.", {"words": _TEXT}, _archive_search),
}
