"""A kernel: CUDA source with its TOML header, plus chosen params. The genome of the search."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from fitness.expressions import ExpressionError, nearest
from fitness.formats import get_format
from fitness.formats.format import numbered
from fitness.header import FormatChoice, Header, KernelError, Launch, Param, TensorMap, Workspace
from fitness.header_reader import read_header

__all__ = [
    "FormatChoice",
    "Header",
    "Kernel",
    "KernelError",
    "Launch",
    "Param",
    "TensorMap",
    "Workspace",
    "load_kernel",
    "parse_kernel",
]

MAX_SOURCE_BYTES: Final = 64 * 1024

_HEADER = re.compile(r"\s*/\*---[ \t]*\r?\n(?P<toml>.*?)^[ \t]*---\*/", re.DOTALL | re.MULTILINE)
_EXAMPLE: Final = 'begin the file with /*--- then TOML (format = "...", [[launch]], [params]), then ---*/'


@dataclass(frozen=True, eq=False)
class Kernel:
    """Source + params, equal and hashed by `id`. Make one with `parse_kernel` or `with_params`.

    Attributes:
        source: the whole `.cu` text, header included.
        params: a value for every param of the header; always feasible.
        header: the parsed header of `source`.
    """

    source: str
    params: Mapping[str, int]
    header: Header

    @cached_property
    def id(self) -> str:
        """sha256 (hex) of the JSON of [source, sorted params]."""
        digest = _digest_of(self.source).copy()
        digest.update(f", {json.dumps(sorted(self.params.items()))}]".encode())
        return digest.hexdigest()

    @property
    def defines(self) -> tuple[str, ...]:
        """Compiler definitions of the params, in the header's order: `-DBM=64`."""
        return tuple(f"-D{name}={self.params[name]}" for name in self.header.params)

    @property
    def format(self) -> FormatChoice:
        """The format with every option a plain choice: params and indices resolved, defaults filled in."""
        choice = self.header.format
        chosen: dict[str, str | int] = {}
        for name, choices in get_format(choice.name).options.items():
            option = choice.options.get(name, choices[0])
            if isinstance(option, str):
                option = self.params.get(option, option)
            picked = numbered(choices, option) if isinstance(option, int) else option
            assert picked is not None, "the header was checked"
            chosen[name] = picked
        return FormatChoice(choice.name, chosen)

    def feasible(self, params: Mapping[str, int]) -> bool:
        """True if `params` (all of them) take listed values and meet every constraint of the header."""
        known = self.header.params
        if params.keys() != known.keys() or any(value not in known[name].values for name, value in params.items()):
            return False
        try:
            return all(constraint.evaluate(params) for constraint in self.header.constraints)
        except ExpressionError:  # a division by zero in a constraint: such params cannot be meant
            return False

    def with_params(self, params: Mapping[str, int]) -> Kernel:
        """The same source with some params changed.

        Raises:
            KernelError: an unknown param, a value that is not listed, or a broken constraint.
        """
        return Kernel(self.source, _choose(self.header, {**self.params, **params}, "<kernel>"), self.header)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


@functools.lru_cache(maxsize=512)
def _digest_of(source: str) -> hashlib._Hash:
    """What the ids of all kernels of a source have in common: searches ask for thousands of them."""
    return hashlib.sha256(f"[{json.dumps(source)}".encode())


def parse_kernel(source: str, *, path: str = "<kernel>", params: Mapping[str, int] | None = None) -> Kernel:
    """Read a kernel file's text.

    Args:
        source: the file's text.
        path: its name, for messages.
        params: values other than the defaults.

    Raises:
        KernelError: no header, bad header, too long, or impossible params.
    """
    size = len(source.encode("utf-8", "surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        raise KernelError(path, 1, "", f"{size} bytes of source", f"at most {MAX_SOURCE_BYTES} are allowed")
    match = _HEADER.match(source)
    if match is None:
        raise KernelError(path, 1, "", "no header comment at the start of the file", _EXAMPLE)
    first_line = source.count("\n", 0, match.start("toml")) + 1
    header = _header(match["toml"].replace("\r\n", "\n"), path, first_line)
    return Kernel(source, _choose(header, params or {}, path), header)


@functools.lru_cache(maxsize=512)
def _header(text: str, path: str, first_line: int) -> Header:
    """Headers are read again and again with other code below them, or other params: by every operator."""
    return read_header(text, path=path, first_line=first_line)


def load_kernel(path: Path | str) -> Kernel:
    """Read a kernel file.

    Raises:
        KernelError: as `parse_kernel`, and for a file that is not UTF-8.
        OSError: it cannot be read.
    """
    try:
        source = Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise KernelError(str(path), 1, "", f"not UTF-8: {error.reason}", "save the file as UTF-8") from None
    return parse_kernel(source, path=str(path))


def _choose(header: Header, params: Mapping[str, int], path: str) -> dict[str, int]:
    """The defaults overridden by `params`, in the header's order."""
    chosen = {name: param.default for name, param in header.params.items()}
    for name, value in params.items():
        key = f"params.{name}"
        if name not in chosen:
            raise KernelError(path, header.line("params") or 1, key, "unknown param", nearest(name, chosen))
        if value not in header.params[name].values:
            fix = f"choose one of {list(header.params[name].values)}"
            raise KernelError(path, header.line(key) or 1, key, f"{value} is not among its values", fix)
        chosen[name] = value
    for constraint in header.constraints:
        try:
            holds = constraint.evaluate(chosen)
        except ExpressionError as error:
            raise KernelError(
                path, header.line("constraints") or 1, "constraints", str(error), "change a param"
            ) from None
        if not holds:
            problem = f"{constraint.text!r} does not hold for {chosen}"
            raise KernelError(path, header.line("constraints") or 1, "constraints", problem, "change a param")
    return chosen
