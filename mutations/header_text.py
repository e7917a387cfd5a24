"""Writes a kernel's header: the reverse of `fitness.header_reader`, in the layout that edits of headers know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from fitness.expressions import Expression
from fitness.header import FormatChoice, Header, Launch

_STRING_KEYS: Final = ("dtype", "swizzle", "l2promotion", "oob")


def header_text(header: Header) -> str:
    """The header comment, `/*---` to `---*/`; what was a comment in it is lost."""
    lines = [f"about = {_quoted(header.about)}", f"format = {_format_text(header.format)}"]
    for key in ("dtypes", "out_dtypes", "layouts", "archs", "options"):
        values: tuple[str, ...] = getattr(header, key)
        lines += [f"{key} = {_list(values)}"] if values else []
    for key in ("require", "constraints"):
        expressions: tuple[Expression, ...] = getattr(header, key)
        lines += [f"{key} = [", *(f"    {_text(each)}," for each in expressions), "]"] if expressions else []
    lines += ["atomics = true"] if header.atomics else []
    lines += [f"align = {header.align}"] if header.align != Header.align else []
    for space in header.workspaces:
        lines += ["", "[[workspace]]", f"name = {_quoted(space.name)}", f"bytes = {_text(space.bytes)}"]
        lines += [f"init = {_quoted(space.init)}"]
    for each in header.tensormaps:
        lines += ["", "[[tensormap]]", f"name = {_quoted(each.name)}", f"tensor = {_quoted(each.tensor)}"]
        lines += [f"{key} = {_texts(value)}" for key, value in each.expressions().items() if value]
        lines += [f"{key} = {_quoted(getattr(each, key))}" for key in _STRING_KEYS if getattr(each, key)]
    for launch in header.launches:
        lines += ["", "[[launch]]", *_launch_lines(launch)]
    lines += ["", "[params]"]
    for name, param in header.params.items():
        lines += [f"{name} = {{ values = {list(param.values)}, default = {param.default} }}"]
    return "/*---\n" + "\n".join(lines) + "\n---*/\n"


def _launch_lines(launch: Launch) -> Iterator[str]:
    yield f"kernel = {_quoted(launch.kernel)}"
    yield f"when = {_text(launch.when)}"
    yield f"grid = {_texts(_written(launch.grid))}"
    yield f"block = {_texts(_written(launch.block))}"
    if any(extent.text != "1" for extent in launch.cluster):
        yield f"cluster = {_texts(_written(launch.cluster))}"
    yield f"shared = {_text(launch.shared)}"
    yield f"args = {_list(launch.args)}"
    if launch.memset:
        yield f"memset = {_list(launch.memset)}"
    yield from (f"{key} = true" for key in ("cooperative", "pdl") if getattr(launch, key))
    if launch.carveout is not None:
        yield f"carveout = {launch.carveout}"


def _written(extents: Sequence[Expression]) -> Sequence[Expression]:
    """Without the ones behind the last extent that says something."""
    count = max((n for n, extent in enumerate(extents, start=1) if extent.text != "1"), default=1)
    return extents[:count]


def _format_text(choice: FormatChoice) -> str:
    if not choice.options:
        return _quoted(choice.name)
    options = {"name": choice.name, **choice.options}
    items = (f"{key} = {_quoted(value) if isinstance(value, str) else value}" for key, value in options.items())
    return f"{{ {', '.join(items)} }}"


def _texts(expressions: Sequence[Expression]) -> str:
    return f"[{', '.join(_text(each) for each in expressions)}]"


def _text(expression: Expression) -> str:
    return _quoted(" ".join(expression.text.split()))


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(_quoted(value) for value in values)}]"


def _quoted(text: str) -> str:
    """As TOML; JSON's strings are such."""
    return json.dumps(text, ensure_ascii=False)
