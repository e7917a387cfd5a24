"""Reads the TOML header of a kernel file; every error has file, line, key and fix.

Line numbers are those of the `.cu` file, so that an editor jumps to the key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fitness.dtypes import DTYPES
from fitness.expressions import Expression, ExpressionError, nearest
from fitness.formats import FORMATS, get_format
from fitness.formats.format import numbered
from fitness.header import FormatChoice, Header, KernelError, Launch, Param, TensorMap, Workspace
from fitness.tensormap import ELEMENT_BYTES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES

MAX_PARAMS: Final = 32
MAX_VALUES: Final = 64
MAX_TABLES: Final = 16

_PARAM_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")
_RESERVED: Final = frozenset({"M", "N", "K", "SMS", "L2"})
_FLAGS: Final = (
    re.compile(r"--?use_fast_math\Z"),
    re.compile(r"--?maxrregcount=\d{1,3}\Z"),
    re.compile(r"--?(fmad|ftz|prec-div|prec-sqrt)=(true|false)\Z"),
    re.compile(r"--?extra-device-vectorization\Z"),
)
_ARCH = re.compile(r"sm_\d{2,3}[af]?")
_FLAG_HELP: Final = (
    "allowed: --use_fast_math, --maxrregcount=N, --fmad=, --ftz=, --prec-div=, --prec-sqrt= (true or false), "
    "--extra-device-vectorization"
)


def read_header(text: str, *, path: str, first_line: int) -> Header:
    """Parse the TOML between `/*---` and `---*/`.

    Args:
        text: the TOML text.
        path: file name for messages.
        first_line: line of the file on which `text` begins.

    Raises:
        KernelError: anything wrong with it.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+), column (\d+)", str(error))
        line = first_line + (int(at[1]) - 1 if at else text.count("\n"))
        what = re.sub(r" \(at .*\)\Z", f", column {at[2]}" if at else "", str(error))  # its lines are not the file's
        raise KernelError(path, line, "", f"the header is not TOML: {what}", "correct the header comment") from None
    except RecursionError:  # tomllib descends into nested arrays without a limit of its own
        raise KernelError(path, first_line, "", "the header is nested too deeply", "flatten it") from None
    lines = _key_lines(text, first_line)
    return _Reader(path, first_line, lines).header(data)


def _key_lines(text: str, first_line: int) -> dict[str, int]:
    """Line of every key that starts a line and of every table heading; arrays of tables are numbered."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, content in enumerate(text.splitlines(), first_line):
        if heading := re.match(r"\s*\[\[\s*([\w.-]+)\s*\]\]", content):
            name = heading[1]
            table = f"{name}[{counts.get(name, 0)}]"
            counts[name] = counts.get(name, 0) + 1
            lines.setdefault(table, number)
        elif heading := re.match(r"\s*\[\s*([\w.-]+)\s*\]\s*(#.*)?$", content):
            table = heading[1]
            lines.setdefault(table, number)
        elif key := re.match(r"\s*[\"']?([\w.-]+)[\"']?\s*=", content):
            lines.setdefault(f"{table}.{key[1]}" if table else key[1], number)
    return lines


class _Reader:
    """Turns the parsed TOML into a Header; knows the lines for its errors."""

    def __init__(self, path: str, first_line: int, lines: Mapping[str, int]) -> None:
        self.path, self.first_line, self.lines = path, first_line, lines

    def error(self, key: str, problem: str, fix: str) -> KernelError:
        at = key
        while at and at not in self.lines:
            at = at.rpartition(".")[0]
        return KernelError(self.path, self.lines.get(at, self.first_line), key, problem, fix)

    def header(self, data: Mapping[str, Any]) -> Header:
        self.known(data, "", ("about", "format", "require", "constraints", "atomics", "align", "dtypes",
                              "out_dtypes", "layouts", "archs", "options",
                              "workspace", "launch", "tensormap", "params"))  # fmt: skip
        params = self.params(self.typed(data, "params", dict, {}))
        launches = tuple(self.launch(i, table) for i, table in enumerate(self.tables(data, "launch")))
        if not launches:
            raise self.error("launch", "no launch is declared", "add a [[launch]] with kernel, grid, block, args")
        header = Header(
            about=self.typed(data, "about", str, ""),
            format=self.format(data, params),
            launches=launches,
            params=params,
            require=self.expressions(data, "require"),
            constraints=self.expressions(data, "constraints"),
            atomics=self.typed(data, "atomics", bool, False),
            align=self.align(data),
            dtypes=self.listed(data, "dtypes", DTYPES),
            out_dtypes=self.listed(data, "out_dtypes", DTYPES),
            layouts=self.listed(data, "layouts", ("col", "row")),
            archs=self.archs(data),
            options=self.options(data),
            workspaces=tuple(self.workspace(i, table) for i, table in enumerate(self.tables(data, "workspace"))),
            tensormaps=tuple(self.tensormap(i, table) for i, table in enumerate(self.tables(data, "tensormap"))),
            lines=dict(self.lines),
        )
        self.constraints(header)
        self.distinct(header)
        return header

    # -- values ---------------------------------------------------------------------------------------------------

    def known(self, table: Mapping[str, Any], prefix: str, keys: Sequence[str]) -> None:
        for key in table:
            if key not in keys:
                raise self.error(prefix + key, "unknown key", nearest(key, keys))

    def typed(self, table: Mapping[str, Any], key: str, kind: type, default: Any, prefix: str = "") -> Any:
        value = table.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            names = {str: "a string", bool: "true or false", int: "an integer", dict: "a table", list: "a list"}
            raise self.error(prefix + key, f"{value!r} is not {names[kind]}", f"write {names[kind]}")
        return value

    def required(self, table: Mapping[str, Any], key: str, prefix: str) -> Any:
        if key not in table:
            raise self.error(prefix + key, "missing", f"add `{key} = ...` to this table")
        return table[key]

    def identifier(self, table: Mapping[str, Any], key: str, prefix: str) -> str:
        name = self.required(table, key, prefix)
        if not isinstance(name, str) or not _IDENTIFIER.match(name):
            raise self.error(prefix + key, f"{name!r} is not an identifier", "write a C identifier in quotes")
        return name

    def strings(self, table: Mapping[str, Any], key: str, prefix: str = "") -> tuple[str, ...]:
        values = self.typed(table, key, list, [], prefix)
        for value in values:
            if not isinstance(value, str):
                raise self.error(prefix + key, f"{value!r} is not a string", f'write "{value}" in quotes')
        return tuple(values)

    def tables(self, data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
        tables = self.typed(data, key, list, [])
        if len(tables) > MAX_TABLES:
            raise self.error(key, f"{len(tables)} tables", f"at most {MAX_TABLES} are allowed")
        if any(not isinstance(table, dict) for table in tables):
            raise self.error(key, "not a list of tables", f"write [[{key}]] headings")
        return list(tables)

    def expression(self, value: Any, key: str) -> Expression:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise self.error(key, f"{value!r} is not an expression", "write an integer or a string")
        try:
            return Expression(str(value))
        except ExpressionError as error:
            raise self.error(key, str(error), "see the expressions of the kernel file's documentation") from None

    def expressions(self, table: Mapping[str, Any], key: str, prefix: str = "") -> tuple[Expression, ...]:
        return tuple(self.expression(value, prefix + key) for value in self.typed(table, key, list, [], prefix))

    def dims(
        self, table: Mapping[str, Any], key: str, prefix: str, default: Any
    ) -> tuple[Expression, Expression, Expression]:
        value = table.get(key, default)
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(values) <= 3:
            raise self.error(prefix + key, f"{len(values)} dimensions", "give one to three: x, y, z")
        x, y, z = (self.expression(item, prefix + key) for item in [*values, 1, 1][:3])
        return x, y, z

    # -- keys -----------------------------------------------------------------------------------------------------

    def align(self, data: Mapping[str, Any]) -> int:
        align = int(self.typed(data, "align", int, 16))
        if align not in (2, 4, 8, 16, 32, 64, 128, 256):
            raise self.error("align", f"{align} bytes", "write a power of two from 2 to 256")
        return align

    def listed(self, data: Mapping[str, Any], key: str, known: Iterable[str]) -> tuple[str, ...]:
        values = self.strings(data, key)
        for value in values:
            if value not in known:
                raise self.error(key, f"{value!r} is not known", nearest(value, known))
        return values

    def archs(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        values = self.strings(data, "archs")
        for value in values:
            if not _ARCH.fullmatch(value):
                raise self.error("archs", f"{value!r} is no architecture", 'write one as NVRTC names it, "sm_90a"')
        return values

    def options(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        flags = self.strings(data, "options")
        for flag in flags:
            if not any(pattern.match(flag) for pattern in _FLAGS):
                raise self.error("options", f"compile flag {flag!r} is not allowed", _FLAG_HELP)
        return flags

    def params(self, table: Mapping[str, Any]) -> dict[str, Param]:
        if len(table) > MAX_PARAMS:
            raise self.error("params", f"{len(table)} params", f"at most {MAX_PARAMS} are allowed")
        return {name: self.param(name, value) for name, value in table.items()}

    def param(self, name: str, table: Any) -> Param:
        key = f"params.{name}"
        if not _PARAM_NAME.match(name) or name in _RESERVED:
            raise self.error(key, "not a name for a param", f"use upper case, not {', '.join(sorted(_RESERVED))}")
        if not isinstance(table, dict):
            raise self.error(key, f"{table!r} is not a table", "write { values = [16, 32], default = 16 }")
        self.known(table, f"{key}.", ("values", "default"))
        values = self.required(table, "values", f"{key}.")
        default = self.required(table, "default", f"{key}.")
        if not isinstance(values, list) or not 1 <= len(values) <= MAX_VALUES or not all(map(_is_int32, values)):
            raise self.error(key, "values are not 1 to 64 integers of 32 bits", "write values = [16, 32]")
        if len(set(values)) != len(values):
            raise self.error(key, f"a value is repeated in {values}", "list each value once")
        if not _is_int32(default) or default not in values:
            raise self.error(key, f"default {default!r} is not among its values", f"choose one of {values}")
        return Param(tuple(values), default)

    def format(self, data: Mapping[str, Any], params: Mapping[str, Param]) -> FormatChoice:
        value = self.required(data, "format", "")
        table = {"name": value} if isinstance(value, str) else value
        if not isinstance(table, dict) or not isinstance(table.get("name"), str):
            raise self.error("format", f"{value!r} names no format", 'write "nm24" or { name = "nm24", ... }')
        if table["name"] not in FORMATS:  # no dotted path: a candidate must not choose what Python imports
            raise self.error("format", f"unknown format {table['name']!r}", nearest(table["name"], FORMATS))
        storage = get_format(table["name"])
        options = {key: option for key, option in table.items() if key != "name"}
        for key, option in options.items():
            if key not in storage.options:
                raise self.error("format", f"unknown option {key!r} of {storage.name!r}", nearest(key, storage.options))
            self.format_option(key, option, storage.options[key], params)
        return FormatChoice(table["name"], options)

    def format_option(self, key: str, option: Any, choices: Sequence[str], params: Mapping[str, Param]) -> None:
        if isinstance(option, str) and option in params:
            bad = [value for value in params[option].values if numbered(choices, value) is None]
            if bad:
                how = "" if numbered(choices, 0) is None else " by index"
                fix = f"the param picks one of {list(choices)}{how}"
                raise self.error(f"params.{option}", f"values {bad} pick no choice of option {key!r}", fix)
        elif _is_int32(option):
            if numbered(choices, option) is None:
                fix = f"write one of {list(choices)}"
                raise self.error("format", f"{key} = {option} picks no choice", fix)
        elif option not in choices:
            fix = f"write one of {list(choices)} or the name of a param"
            raise self.error("format", f"{key} = {option!r} is no choice", fix)

    def workspace(self, index: int, table: Mapping[str, Any]) -> Workspace:
        prefix = f"workspace[{index}]."
        self.known(table, prefix, ("name", "bytes", "init"))
        name = self.identifier(table, "name", prefix)
        init = table.get("init", "poison")
        if init not in ("poison", "zero", "zero_once"):
            raise self.error(f"{prefix}init", f"{init!r}", 'write "poison", "zero" or "zero_once"')
        return Workspace(name, self.expression(self.required(table, "bytes", prefix), f"{prefix}bytes"), init)

    def tensormap(self, index: int, table: Mapping[str, Any]) -> TensorMap:
        prefix = f"tensormap[{index}]."
        lists, choices = ("box", "dims", "strides", "element_strides"), {
            "dtype": tuple(ELEMENT_BYTES), "swizzle": tuple(SWIZZLES), "l2promotion": L2_PROMOTIONS, "oob": OOB_FILLS,
        }  # fmt: skip
        self.known(table, prefix, ("name", "tensor", *lists, *choices))
        self.required(table, "box", prefix)
        sizes = {key: self.expressions(table, key, prefix) for key in lists}
        for key in ("box", "dims"):
            if key in table and not 1 <= len(sizes[key]) <= 5:
                raise self.error(f"{prefix}{key}", f"{len(sizes[key])} dimensions", "give one to five, innermost first")
        for key, allowed in choices.items():
            if key in table and table[key] not in allowed:
                raise self.error(f"{prefix}{key}", f"{table[key]!r}", nearest(str(table[key]), allowed))
        texts = {key: table[key] for key in choices if key in table}
        name = self.identifier(table, "name", prefix)
        self.required(table, "tensor", prefix)
        tensor = self.typed(table, "tensor", str, "", prefix)
        box, dims, strides, steps = (sizes[key] for key in lists)
        return TensorMap(name, tensor, box, dims, strides, steps, **texts)

    def launch(self, index: int, table: Mapping[str, Any]) -> Launch:
        prefix = f"launch[{index}]."
        self.known(table, prefix, ("kernel", "grid", "block", "shared", "args", "memset", "when", "cluster",
                                   "cooperative", "pdl", "carveout"))  # fmt: skip
        for key in ("grid", "block", "args"):
            self.required(table, key, prefix)
        carveout = self.typed(table, "carveout", int, -1, prefix)
        if "carveout" in table and not 0 <= carveout <= 100:
            raise self.error(f"{prefix}carveout", f"{carveout}", "write a percentage from 0 to 100")
        return Launch(
            kernel=self.identifier(table, "kernel", prefix),
            grid=self.dims(table, "grid", prefix, 1),
            block=self.dims(table, "block", prefix, 1),
            shared=self.expression(table.get("shared", 0), f"{prefix}shared"),
            args=self.strings(table, "args", prefix),
            memset=self.strings(table, "memset", prefix),
            when=self.expression(table.get("when", 1), f"{prefix}when"),
            cluster=self.dims(table, "cluster", prefix, 1),
            cooperative=self.typed(table, "cooperative", bool, False, prefix),
            pdl=self.typed(table, "pdl", bool, False, prefix),
            carveout=carveout if "carveout" in table else None,
        )

    # -- the header as a whole ------------------------------------------------------------------------------------

    def constraints(self, header: Header) -> None:
        defaults = {name: param.default for name, param in header.params.items()}
        for constraint in header.constraints:
            unknown = sorted(constraint.names - header.params.keys())
            if unknown:
                problem = f"{unknown[0]!r} in {constraint.text!r} is no param"
                raise self.error("constraints", problem, nearest(unknown[0], header.params))
            try:
                holds = constraint.evaluate(defaults)
            except ExpressionError as error:
                raise self.error("constraints", str(error), "make it hold for the defaults") from None
            if not holds:
                problem = f"the defaults break {constraint.text!r}"
                raise self.error("constraints", problem, "change a default or the constraint")

    def distinct(self, header: Header) -> None:
        named = [(f"workspace[{i}].name", space.name) for i, space in enumerate(header.workspaces)]
        named += [(f"tensormap[{i}].name", tensor.name) for i, tensor in enumerate(header.tensormaps)]
        taken = set(header.params)
        for key, name in named:
            if name in taken:
                raise self.error(key, f"the name {name!r} is used twice", "give each its own name")
            taken.add(name)


def _is_int32(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31
