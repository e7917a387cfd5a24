"""Functions a model may call while it makes a child. Every result is bounded text; every call is recorded.

`compile` and `simulate` run the kernel in evo's isolated workers with the limits of a candidate; `lookup` and
`archive_search` only read. None takes a path, none writes anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
        {"type": "function", "function": {"name": name, "description": text, "parameters": _schema(parameter)}}
        for name, (text, parameter, _) in _TOOLS.items()
        if name in names
    )


def call_tool(call: ToolCall, access: Access) -> str:
    """The result of a call, as text for the model; a call that makes no sense says so."""
    if call.name not in access.settings.tools:
        return f"there is no tool {one_line(call.name, 40)}; there are: {', '.join(access.settings.tools) or 'none'}"
    name: ToolName = call.name
    parameter, run = _TOOLS[name][1:]
    try:
        arguments = json.loads(call.arguments or "{}", strict=False)
    except ValueError as error:
        return f"the arguments are not JSON: {error}"
    if not isinstance(arguments, Mapping) or not isinstance(arguments.get(parameter), str):
        return f'the arguments must be an object with the text "{parameter}"'
    text: str = arguments[parameter]
    return access.asker.tool(name, json.dumps({parameter: text}), lambda: _bounded(run(text, access)))


def _compile(source: str, access: Access) -> str:
    return _judged(source, access, Gate.COMPILE)


def _simulate(source: str, access: Access) -> str:
    return _judged(source, access, Gate.TIMING)


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


def _lookup(words: str, access: Access) -> str:
    if access.references is None:
        return "there is nothing to look up"
    found = access.references.search(words)
    return "\n\n".join(f"{entry.source}:\n{entry.text}" for entry in found) or "nothing found"


def _archive_search(words: str, access: Access) -> str:
    return "\n\n".join(access.services.search_archive(words)) or "nothing found"


def _bounded(text: str) -> str:
    text = quoted(text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 20] + "\n(cut off)"


def _schema(parameter: str) -> Mapping[str, Any]:
    return {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}


_TOOLS: Final[Mapping[ToolName, tuple[str, str, Callable[[str, Access], str]]]] = {
    "compile": ("Compile a whole kernel file; gives errors with their lines, or what it uses.", "source", _compile),
    "simulate": ("Check a whole kernel file for right results, and time it; gives the profile.", "source", _simulate),
    "lookup": ("Search the reference and the kernel library for words.", "words", _lookup),
    "archive_search": ("Search verified kernels of earlier runs for words.", "words", _archive_search),
}
