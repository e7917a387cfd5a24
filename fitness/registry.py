"""Plain dicts name -> "module:Class" become objects: how formats, ops and patterns are found.

A dotted path of a user's own ("my_package.my_module:MyFormat") is accepted wherever a name is.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from fitness.expressions import nearest


class UnknownNameError(ValueError):
    """A name that no registry entry has, or a dotted path that cannot be imported."""


def find(registry: Mapping[str, str], name: str, what: str) -> Any:
    """The class that `name` stands for.

    Args:
        registry: name -> "module:Class".
        name: a key of the registry or a dotted path "module:Class".
        what: the noun for the message ("format").

    Raises:
        UnknownNameError: no such name (with the nearest spelling), or the path cannot be imported.
    """
    if name not in registry and ":" not in name:
        raise UnknownNameError(f"unknown {what} {name!r}; {nearest(name, registry)}")
    module, _, attribute = registry.get(name, name).partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownNameError(f"{what} {name!r} cannot be imported: {error}") from error
