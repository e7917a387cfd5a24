"""Edits of a kernel's TOML header as text, so that comments and layout stay. Each returns the new source.

A header in a layout they do not recognise raises `HeaderLayoutError`; a rule then makes no child there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

_END: Final = re.compile(r"^[ \t]*---\*/", re.MULTILINE)
_STRING: Final = r'"(?:[^"\\\n]|\\.)*"'
_VALUE: Final = rf"(?:\[(?:[^\[\]\"]|{_STRING}|\[[^\[\]]*\])*\]|\{{[^{{}}\n]*\}}|{_STRING}|[^\s#\[{{\"]+)"


class HeaderLayoutError(ValueError):
    """A header whose layout these edits do not know."""


def _split(source: str) -> tuple[str, str]:
    end = _END.search(source)
    if end is None:
        raise HeaderLayoutError("the source has no header")
    return source[: end.start()], source[end.start() :]


def set_top(source: str, key: str, value: str) -> str:
    """Set a key above the first table; `value` is TOML."""
    header, code = _split(source)
    first = re.search(r"^\[", header, re.MULTILINE)
    top, tables = (header[: first.start()], header[first.start() :]) if first else (header, "")
    top, count = _replace_value(top, key, value)
    if not count:
        top, count = re.subn(r"(^format[ \t]*=[^\n]*\n)", rf"\g<1>{key} = ", top, count=1, flags=re.MULTILINE)
        if not count:
            raise HeaderLayoutError("no line `format = ...`")
        top = re.sub(rf"^{key} = (?!\n)", lambda match: f"{match[0]}{value}\n", top, count=1, flags=re.MULTILINE)
    return top + tables + code


def set_launch(source: str, key: str, value: str) -> str:
    """Set a key of the only [[launch]] table."""
    header, code = _split(source)
    if header.count("[[launch]]") != 1:
        raise HeaderLayoutError("several launches")
    start = header.index("[[launch]]")
    stop = re.search(r"^\[", header[start + 2 :], re.MULTILINE)
    end = len(header) if stop is None else start + 2 + stop.start()
    table, count = _replace_value(header[start:end], key, value)
    if not count:
        table = table.rstrip("\n") + f"\n{key} = {value}\n\n"
    return header[:start] + table + header[end:] + code


def add_launch(source: str, table: str) -> str:
    """Add a [[launch]] behind the last one; `table` is its TOML without the heading."""
    header, code = _split(source)
    start = header.rindex("[[launch]]")
    stop = re.search(r"^\[", header[start + 2 :], re.MULTILINE)
    end = len(header) if stop is None else start + 2 + stop.start()
    return f"{header[:end].rstrip()}\n\n[[launch]]\n{table.strip()}\n\n{header[end:]}{code}"


def add_workspace(source: str, table: str) -> str:
    """Add a [[workspace]] in front of the first launch."""
    header, code = _split(source)
    start = header.index("[[launch]]")
    return f"{header[:start]}[[workspace]]\n{table.strip()}\n\n{header[start:]}{code}"


def add_param(source: str, name: str, values: Sequence[int], default: int) -> str:
    """Add a tunable at the end of [params], which is made if need be."""
    header, code = _split(source)
    line = f"{name} = {{ values = {list(values)}, default = {default} }}\n"
    if not re.search(r"^\[params\][ \t]*$", header, re.MULTILINE):
        return f"{header.rstrip()}\n\n[params]\n{line}{code}"
    if not re.search(r"^\[params\][^\[]*\Z", re.sub(r"=[^\n]*", "", header), re.MULTILINE):
        raise HeaderLayoutError("[params] is not the last table")
    return f"{header.rstrip()}\n{line}{code}"


def remove_param(source: str, name: str) -> str:
    """Take a tunable out; nothing else of the header may mention it."""
    header, code = _split(source)
    header, count = re.subn(
        rf"^[ \t]*{name}[ \t]*=[ \t]*\{{[^}}\n]*\}}[^\n]*\n", "", header, count=1, flags=re.MULTILINE
    )
    if not count or re.search(rf"\b{name}\b", re.sub(r"#[^\n]*", "", header)):
        raise HeaderLayoutError(f"no line `{name} = {{ values = ..., default = ... }}`, or {name} is used elsewhere")
    return header + code


def set_default(source: str, name: str, value: int) -> str:
    """Change the default of a tunable."""
    header, code = _split(source)
    pattern = rf"(^[ \t]*{name}[ \t]*=[ \t]*\{{[^}}\n]*\bdefault[ \t]*=[ \t]*)-?[0-9_]+"
    header, count = re.subn(pattern, rf"\g<1>{value}", header, count=1, flags=re.MULTILINE)
    if not count:
        raise HeaderLayoutError(f"no line `{name} = {{ values = ..., default = ... }}`")
    return header + code


def add_constraint(source: str, constraint: str) -> str:
    """Add one to `constraints`."""
    header, _ = _split(source)
    held = re.search(rf"^constraints[ \t]*=[ \t]*(\[(?:[^\[\]\"]|{_STRING})*\])", header, re.MULTILINE)
    items = re.findall(_STRING, held[1]) if held else []
    return set_top(source, "constraints", f"[{', '.join([*items, json.dumps(constraint)])}]")


def replace_in(source: str, keys: Sequence[str], old: str, new: str) -> str:
    """Replace a text in the values of some keys, in whatever table they stand."""
    header, code = _split(source)
    for key in keys:
        pattern = re.compile(rf"^([ \t]*{key}[ \t]*=[ \t]*)({_VALUE})", re.MULTILINE)
        header = pattern.sub(lambda match: match[1] + match[2].replace(old, new), header)
    return header + code


def strings(values: Sequence[str]) -> str:
    """A TOML list of strings."""
    return f"[{', '.join(json.dumps(value) for value in values)}]"


def _replace_value(table: str, key: str, value: str) -> tuple[str, int]:
    pattern = re.compile(rf"^([ \t]*{key}[ \t]*=[ \t]*){_VALUE}", re.MULTILINE)
    return pattern.subn(lambda match: f"{match[1]}{value}", table, count=1)
