"""An experiment as TOML again, so that a report holds the file that reproduces it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def as_toml(experiment: Mapping[str, object]) -> str:
    """The experiment file that says what `experiment` says; keys that are None are left out.

    `tomllib.loads(as_toml(x))` is x without its None (TOML 1.0).
    """
    lines = [f"{_key(k)} = {_value(v)}" for k, v in experiment.items() if v is not None and not isinstance(v, Mapping)]
    for name, section in experiment.items():
        if isinstance(section, Mapping):
            lines += ["", f"[{_key(name)}]"]
            lines += [f"{_key(k)} = {_value(v)}" for k, v in section.items() if v is not None]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
    return _text(value) if isinstance(value, str) else repr(value)
