"""Integer expressions of kernel headers and task domains, parsed and evaluated without `eval`.

Grammar, loosest binding first (Python's precedence; a comparison, `and`, `or`, `not` gives 0 or 1)::

    or  >  and  >  not  >  == != < <= > >=  >  + -  >  * // %  >  unary -  >  number | name | f(a, b) | (...)

Names may be dotted (`W.nnz`). Functions: `cdiv(a, b)`, `min(...)`, `max(...)`, `round_up(a, multiple)`.
A header comes from a candidate, possibly from a model, so length, depth and magnitude are limited.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_LENGTH: Final = 500
MAX_DEPTH: Final = 32
MAX_OPERATORS: Final = 64  # bounds the depth of a left-leaning tree, so that evaluation cannot exhaust the stack
MAX_MAGNITUDE: Final = 2**63

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)|(?P<op>//|==|!=|<=|>=|[-+*%<>(),]))"
)
_COMPARISONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
_WORDS: Final = frozenset({"and", "or", "not"})

# ("number", 3) | ("name", "M") | (operator, operand, ...) with operator a symbol, a word or "call:<function>"
_Tree = tuple[Any, ...]


class ExpressionError(ValueError):
    """A malformed expression, an unknown name, a division by zero or a value beyond 2^63."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint "; did you mean 'x'?" for the known name most like `name`, or the list of known names."""
    names = sorted(known)
    folded = {candidate.lower(): candidate for candidate in names}
    match = difflib.get_close_matches(name[:64].lower(), list(folded), n=1, cutoff=0.6)
    if match:
        return f"did you mean {folded[match[0]]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known here"


def cdiv(dividend: int, divisor: int) -> int:
    """Quotient rounded up."""
    return -(-dividend // divisor)


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple of `multiple` that is at least `value`."""
    return cdiv(value, multiple) * multiple


_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., int], int, int]]] = {  # name -> function, fewest, most arguments
    "cdiv": (cdiv, 2, 2),
    "round_up": (round_up, 2, 2),
    "min": (min, 1, 8),
    "max": (max, 1, 8),
}

_BINARY: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
}


@dataclass(frozen=True)
class Expression:
    """One parsed expression; equal and hashed by its text.

    Attributes:
        text: as written.
        names: every name it needs to be evaluated.

    Raises:
        ExpressionError: on construction, if the text does not parse or is too long or too deep.
    """

    text: str
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    _tree: _Tree = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        tree = _Parser(self.text).parse()
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "names", frozenset(_names(tree)))

    def evaluate(self, names: Mapping[str, int]) -> int:
        """Value with the given names.

        Raises:
            ExpressionError: a name is missing, a division by zero, or |value| >= 2^63.
        """
        return _evaluate(self._tree, names, self.text)

    def __str__(self) -> str:
        return self.text


class _Parser:
    """Recursive descent over the token list; every method returns a tree."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"expression of {len(text)} characters; at most {MAX_LENGTH} are allowed")
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.operators = 0

    def parse(self) -> _Tree:
        if not self.tokens:
            raise ExpressionError("empty expression")
        tree = self.disjunction()
        if self.at < len(self.tokens):
            raise ExpressionError(f"unexpected {self.tokens[self.at][1]!r} in {self.text!r}")
        return tree

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, *wanted: str) -> str:
        """The next token if it is one of `wanted`, consumed; else an empty string."""
        token = self.peek()
        if token and token in wanted and self.tokens[self.at][0] != "number":
            self.at += 1
            return token
        return ""

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            raise ExpressionError(f"expected {wanted!r} but found {self.peek() or 'the end'!r} in {self.text!r}")

    def nested(self, rule: Callable[[], _Tree]) -> _Tree:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"expression nested deeper than {MAX_DEPTH} levels")
        tree = rule()
        self.depth -= 1
        return tree

    def chain(self, rule: Callable[[], _Tree], *operators: str) -> _Tree:
        tree = rule()
        while operator := self.take(*operators):
            self.operators += 1
            if self.operators > MAX_OPERATORS:
                raise ExpressionError(f"expression of more than {MAX_OPERATORS} operators")
            tree = (operator, tree, rule())
        return tree

    def disjunction(self) -> _Tree:
        return self.chain(lambda: self.chain(self.negation, "and"), "or")

    def negation(self) -> _Tree:
        if self.take("not"):
            return ("not", self.nested(self.negation))
        return self.comparison()

    def comparison(self) -> _Tree:
        tree = self.sum()
        if operator := self.take(*_COMPARISONS):
            tree = (operator, tree, self.sum())
            if self.peek() in _COMPARISONS:
                raise ExpressionError(f"chained comparison in {self.text!r}; write `a < b and b < c`")
        return tree

    def sum(self) -> _Tree:
        return self.chain(lambda: self.chain(self.unary, "*", "//", "%"), "+", "-")

    def unary(self) -> _Tree:
        if self.take("-"):
            return ("negate", self.nested(self.unary))
        return self.atom()

    def atom(self) -> _Tree:
        if self.take("("):
            tree = self.nested(self.disjunction)
            self.expect(")")
            return tree
        if self.at >= len(self.tokens):
            raise ExpressionError(f"{self.text!r} ends where a value is expected")
        kind, token = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            if len(token) > 19 or int(token) >= MAX_MAGNITUDE:
                raise ExpressionError(f"{token} is not below 2^63")
            return ("number", int(token))
        if kind != "name" or token in _WORDS:
            raise ExpressionError(f"unexpected {token!r} in {self.text!r}")
        return self.call(token) if self.take("(") else ("name", token)

    def call(self, function: str) -> _Tree:
        if function not in _FUNCTIONS:
            raise ExpressionError(f"unknown function {function!r} in {self.text!r}; {nearest(function, _FUNCTIONS)}")
        arguments = [self.nested(self.disjunction)]
        while self.take(","):
            arguments.append(self.nested(self.disjunction))
        self.expect(")")
        _, fewest, most = _FUNCTIONS[function]
        if not fewest <= len(arguments) <= most:
            raise ExpressionError(f"{function} takes {fewest} to {most} arguments, not {len(arguments)}: {self.text!r}")
        return (f"call:{function}", *arguments)


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            bad = text[at:].lstrip()[0]
            hint = " (integer division is `//`)" if bad == "/" else " (equality is `==`)" if bad == "=" else ""
            raise ExpressionError(f"unexpected {bad!r} in {text!r}{hint}")
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        at = match.end()
    return found


def _names(tree: _Tree) -> Iterable[str]:
    if tree[0] == "name":
        yield tree[1]
    elif tree[0] != "number":
        for operand in tree[1:]:
            yield from _names(operand)


def _evaluate(tree: _Tree, names: Mapping[str, int], text: str) -> int:
    kind = tree[0]
    if kind == "number":
        return int(tree[1])
    if kind == "name":
        if tree[1] not in names:
            raise ExpressionError(f"unknown name {tree[1]!r} in {text!r}; {nearest(tree[1], names)}")
        return int(names[tree[1]])
    if kind in ("and", "or"):  # short-circuits, so that `B != 0 and A % B == 0` is safe
        left = _evaluate(tree[1], names, text) != 0
        return int(left) if left == (kind == "or") else int(_evaluate(tree[2], names, text) != 0)
    values = [_evaluate(operand, names, text) for operand in tree[1:]]
    try:
        value = _apply(kind, values)
    except ZeroDivisionError:
        raise ExpressionError(f"division by zero in {text!r}") from None
    if abs(value) >= MAX_MAGNITUDE:
        raise ExpressionError(f"a value in {text!r} is not below 2^63 in magnitude")
    return value


def _apply(kind: str, values: list[int]) -> int:
    if kind == "not":
        return int(values[0] == 0)
    if kind == "negate":
        return -values[0]
    if kind in _BINARY:
        return _BINARY[kind](values[0], values[1])
    return _FUNCTIONS[kind.removeprefix("call:")][0](*values)
