"""PTX text -> `Module`: functions, instructions with source lines, module variables (PTX ISA, "Syntax").

Only what NVRTC emits is parsed; what is not understood raises `PtxError` or becomes an instruction that the
code generator refuses by name. Nothing is skipped silently that could change a result.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fitness.devices.simulator.ptx import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Vector,
)
from fitness.devices.simulator.variables import PtxError, parse_variable

#: Basename of the candidate in `.file` directives; its `.loc` lines are the candidate's own.
CANDIDATE_FILE = "candidate.cu"

_BRACE = re.compile(r"[{}]")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.M)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+(\d+)\s+(\d+))?")
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_ENTRY = re.compile(r"((?:\.visible|\.weak|\.extern)\s+)?\.(entry|func)\b")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_REG = re.compile(r"\.reg\s*(?:\.v[248]\s*)?\.(\w+)\s+(.*)", re.S)
_GUARD = re.compile(r"@(!?)\s*([\w%$]+)\s+", re.S)


def _identifier(name: str) -> str:
    """A register's name as a Python identifier that no helper of the generated code can have."""
    plain = re.sub(r"\W", "_", name.lstrip("%"))
    return "v" + plain if plain.startswith("_") or plain[:1].isdigit() or keyword.iskeyword(plain) else plain


class _Scopes:
    """Registers and labels by nested `{ }` scope; inner declarations get unique names."""

    def __init__(self, registers: dict[str, str]) -> None:
        self.all = registers
        self.stack: list[dict[str, Register]] = [{}]
        self.opened = 0
        self.open = [0]  # numbers of the scopes around, outermost first
        self.labels: set[tuple[int, str]] = set()

    def push(self) -> None:
        self.opened += 1
        self.stack.append({})
        self.open.append(self.opened)

    def pop(self) -> None:
        self.stack.pop()
        self.open.pop()

    def label(self, name: str) -> str:
        """Declare a label; its unique name."""
        self.labels.add((self.open[-1], name))
        return _label_name(self.open[-1], name)

    def target(self, name: str, around: Sequence[int]) -> str:
        """Unique name of the label that `name` means within the scopes `around`, once all are declared."""
        scope = next((number for number in reversed(around) if (number, name) in self.labels), 0)
        return _label_name(scope, name)

    def declare(self, kind: str, names: str) -> None:
        suffix = f"_{self.opened}" if len(self.stack) > 1 else ""
        for name in (part.strip() for part in names.split(",")):
            many = re.fullmatch(r"([\w%$]+)<(\d+)>", name)
            for single in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                register = Register(_identifier(single) + suffix, kind)
                self.stack[-1][single] = register
                self.all[register.name] = kind

    def find(self, name: str) -> Register | None:
        for scope in reversed(self.stack):
            found = scope.get(name)
            if found is not None:
                return found
        return None


def _label_name(scope: int, name: str) -> str:
    return f"{name}${scope}" if scope else name


def split_operands(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    if last:
        parts.append(last)
    return parts


def _operand(text: str, scopes: _Scopes) -> Operand:
    if text == "_":
        return Sink()
    if text.startswith("{"):
        return Vector(tuple(_operand(part, scopes) for part in split_operands(text[1:-1])))
    if text.startswith("["):
        return _address(text[1:-1].strip(), scopes)
    if text.startswith("("):
        return Vector(tuple(_operand(part, scopes) for part in split_operands(text[1:-1])))
    if "|" in text:
        first, second = text.split("|", 1)
        return Pair(_operand(first.strip(), scopes), _operand(second.strip(), scopes))
    register = scopes.find(text)
    if register is not None:
        return register
    if text[0] in "!-" and scopes.find(text[1:].strip()) is not None:
        inner = scopes.find(text[1:].strip())
        assert inner is not None
        return Negated(inner)
    if text[0].isdigit() or text[0] in "-+":
        return Immediate(text)
    return Symbol(text)


def _address(text: str, scopes: _Scopes) -> Operand:
    if "," in text:  # tensor-map addresses: [map, {coordinates}]
        return Vector(tuple(_operand(part, scopes) for part in split_operands(text)))
    match = re.fullmatch(r"([\w%$.]+?)\s*(?:\+\s*(-?\w+)|(-\s*\w+))?", text)
    if match is None:
        raise PtxError(f"address [{text}]")
    base, plus, minus = match.groups()
    offset = int((plus or minus or "0").replace(" ", ""), 0)
    register = scopes.find(base)
    if register is not None:
        return Address(register, offset)
    if base[0].isdigit():
        return Address(None, int(base, 0) + offset)
    return Address(Symbol(base), offset)


class _Parser:
    def __init__(self, text: str, entries: Collection[str] | None) -> None:
        self.entries = entries
        files = {int(number): name.replace("\\", "/").rsplit("/", 1)[-1] for number, name in _FILE.findall(text)}
        self.candidate = {number for number, name in files.items() if name == CANDIDATE_FILE} or {1}
        self.text = _COMMENT.sub("", text)
        self.at = 0
        self.line = 0
        self.module = Module({}, [])

    def parse(self) -> Module:
        while (start := self._skip()) is not None:
            if self.text[start] == "{":
                self.at = self._matching(start) + 1
                continue
            entry = _ENTRY.match(self.text, start)
            if entry:
                self._function(entry)
            elif self.text.startswith((".version", ".target", ".address_size", ".file", ".loc", ".section"), start):
                self._end_of_line()
            elif self.text.startswith(".pragma", start):
                self._statement()
            else:
                self._module_variable(self._statement())
        return self.module

    def _module_variable(self, statement: str) -> None:
        if statement and not statement.startswith((".alias", ".weak .func")):
            self.module.variables.append(parse_variable(statement))

    def _skip(self) -> int | None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n;":
            self.at += 1
        return self.at if self.at < len(self.text) else None

    def _end_of_line(self) -> str:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        line = self.text[self.at : end]
        self.at = end
        return line

    def _statement(self) -> str:
        end = self.text.find(";", self.at)
        if end < 0:
            raise PtxError(f"statement without end: {self.text[self.at : self.at + 60]!r}")
        statement = self.text[self.at : end].strip()
        self.at = end + 1
        return statement

    def _matching(self, start: int) -> int:
        depth = 0
        for match in _BRACE.finditer(self.text, start):
            depth += 1 if match[0] == "{" else -1
            if depth == 0:
                return match.start()
        raise PtxError("unbalanced braces")

    def _function(self, entry: re.Match[str]) -> None:
        brace = self.text.find("{", self.at)
        semicolon = self.text.find(";", self.at)
        head_end = brace if brace >= 0 and (semicolon < 0 or brace < semicolon) else semicolon
        head = self.text[entry.end() : head_end]
        groups = re.findall(r"\(([^)]*)\)", head)
        name_match = _NAME.search(re.sub(r"^\s*\([^)]*\)", "", head))
        if name_match is None:
            raise PtxError(f"function without a name: {head[:60]!r}")
        function = Function(name_match[0], entry[2] == "entry")
        has_results = entry[2] == "func" and head.lstrip().startswith("(")
        if has_results:
            function.results = [parse_variable(p) for p in split_operands(groups[0])]
            groups = groups[1:]
        if groups:
            function.parameters = [parse_variable(p) for p in split_operands(groups[0])]
        if head_end == semicolon:
            self.at = semicolon + 1
            self.module.functions.setdefault(function.name, function)
            return
        if function.entry and self.entries is not None and function.name not in self.entries:
            self.at = self._matching(brace) + 1
            return
        self.at = brace + 1
        self.line = 0
        self._body(function)
        self.module.functions[function.name] = function

    def _body(self, function: Function) -> None:
        scopes = _Scopes(function.registers)
        around: dict[int, tuple[int, ...]] = {}  # scopes around each jump, by its place in the body
        for variable in [*function.parameters, *function.results]:
            if variable.space == "reg":
                scopes.declare(variable.type, variable.name)
        while True:
            start = self._skip()
            if start is None:
                raise PtxError(f"function {function.name} does not end")
            char = self.text[start]
            if char == "{":
                self.at += 1
                scopes.push()
            elif char == "}":
                self.at += 1
                if len(scopes.stack) == 1:
                    break
                scopes.pop()
            elif self.text.startswith((".loc\t", ".loc "), start):
                self._loc(self._end_of_line())
            elif label := _LABEL.match(self.text, start):
                self.at = label.end()
                self._label(label[1], function, scopes)
            else:
                self._body_statement(self._statement(), function, scopes)
                around.setdefault(len(function.body) - 1, tuple(scopes.open))
        _resolve_jumps(function, scopes, around)

    def _label(self, name: str, function: Function, scopes: _Scopes) -> None:
        start = self._skip()
        if start is not None and self.text.startswith(".branchtargets", start):
            names = self._statement().split(None, 1)[1]
            function.targets[name] = tuple(part.strip() for part in names.split(","))
        elif start is not None and self.text.startswith(".callprototype", start):
            self._statement()
        else:
            function.body.append(Label(scopes.label(name)))

    def _loc(self, text: str) -> None:
        match = _LOC.match(text)
        if match is None:
            return
        number, line, outer_number, outer_line = match.groups()
        if int(number) in self.candidate:
            self.line = int(line) or self.line
        elif outer_number and int(outer_number) in self.candidate:
            self.line = int(outer_line) or self.line

    def _body_statement(self, statement: str, function: Function, scopes: _Scopes) -> None:
        if statement.startswith(".reg"):
            match = _REG.match(statement)
            if match is None or ".v2" in statement or ".v4" in statement:
                raise PtxError(f"register declaration {statement!r}")
            scopes.declare(match[1], match[2])
        elif statement.startswith((".pragma", ".maxntid", ".minnctapersm", ".section", ".file")):
            return
        elif statement.startswith("."):
            function.variables.append(parse_variable(statement))
        else:
            function.body.append(self._instruction(statement, scopes))

    def _instruction(self, statement: str, scopes: _Scopes) -> Instruction:
        guard = None
        rest = statement
        if match := _GUARD.match(statement):
            register = scopes.find(match[2])
            if register is None:
                raise PtxError(f"unknown predicate in {statement!r}")
            guard = (register, not match[1])
            rest = statement[match.end() :]
        opcode, _, operands = rest.partition(" ") if " " in rest else rest.partition("\t")
        opcode = opcode.split("\t", 1)[0] if "\t" in opcode else opcode
        operands = rest[len(opcode) :].strip()
        parsed = tuple(_operand(part, scopes) for part in split_operands(operands))
        text = re.sub(r"\s+", " ", statement)
        return Instruction(tuple(opcode.split(".")), parsed, guard, self.line, text)


def _resolve_jumps(function: Function, scopes: _Scopes, around: Mapping[int, tuple[int, ...]]) -> None:
    """Give jumps the unique names of their labels (inline assembly repeats label names in `{ }`)."""
    for place, numbers in around.items():
        item = function.body[place] if place >= 0 else None
        if isinstance(item, Instruction) and item.op[0] == "bra" and isinstance(item.operands[0], Symbol):
            target = Symbol(scopes.target(item.operands[0].name, numbers))
            function.body[place] = replace(item, operands=(target, *item.operands[1:]))


def parse(text: str, entries: Collection[str] | None = None) -> Module:
    """Parse a PTX module.

    Args:
        text: the module.
        entries: kernels wanted, None for all; the others are skipped. Device functions always stay.

    Raises:
        PtxError: the text is not PTX as NVRTC writes it.
    """
    return _Parser(text, entries).parse()
