"""Padding or swizzle of tiles in shared memory, so that the lanes of a warp reach different banks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fitness.expressions import Expression, ExpressionError
from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit
from mutations.rewrite.toml import add_param, replace_in

if TYPE_CHECKING:
    import tree_sitter

_SIZES: Final = (1, 2, 4, 8, 16)
"""Bytes of an element, or of the elements of some stages."""
_PADS: Final = (0, 1, 2, 4)
"""Multiples of what keeps the rows as aligned as they are."""
_BANKS: Final = 32
_GROUP: Final = re.compile(r"\([^()]*\)")
_SUM: Final = re.compile(r"(?P<length>.*\S)\s*\+\s*(?P<pad>\d+)\Z", re.DOTALL)


class Padding(Rule):
    """Other distances between the rows of a tile, or its columns in an order that changes from row to row.

    Padding: a row stride that is a named constant `length + n`, where the header's sizes say what it takes, becomes
    `length + PAD` with PAD a param; a `__shared__` array of two dimensions gets longer rows. Swizzle: in such an
    array whose rows are a power of two long, element c of row r moves to c ^ r (mod the row's length).
    """

    name = "padding"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each named stride and each such array, with each other pad, and swizzled."""
        for stride in _strides(kernel, code):
            for pad in stride.pads:
                if pad != stride.pad:
                    text = f"rows of {stride.name} padded by {stride.param} = {pad} instead of {stride.pad} elements"
                    yield Rewritten(_padded(code, stride, pad), text)
        for array in _arrays(code):
            for pad in _PADS:
                if pad != array.pad:
                    length = f"{array.length} + {pad}" if pad else array.length
                    source = code.edited([Edit(array.columns.start_byte, array.columns.end_byte, length)])
                    yield Rewritten(source, f"rows of {array.name} padded by {pad} instead of {array.pad} elements")
            if not array.pad and _powers_of_two(kernel, array.length):
                yield Rewritten(_swizzled(code, array), f"columns of {array.name} in an order that follows the row")


# -- strides with a name -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stride:
    """`constexpr int name = length + pad`, and where the header counts its bytes: text -> how many times the stride."""

    name: str
    value: tree_sitter.Node
    length: str
    pad: int
    pads: tuple[int, ...]
    groups: tuple[tuple[str, int], ...]

    @property
    def param(self) -> str:
        return self.name.replace("STRIDE", "PAD") if "STRIDE" in self.name else f"{self.name}_PAD"


def _strides(kernel: Kernel, code: Code) -> Iterator[_Stride]:
    for declaration in (node for node in code.root.named_children if node.type == "declaration"):
        if "constexpr int" not in code.text(declaration):
            continue
        for node in declaration.children_by_field_name("declarator"):
            stride = _stride(kernel, code, node)
            if stride is not None and stride.param not in kernel.params and stride.param not in kernel.source:
                yield stride


def _stride(kernel: Kernel, code: Code, node: tree_sitter.Node) -> _Stride | None:
    name, value = node.child_by_field_name("declarator"), node.child_by_field_name("value")
    match = None if name is None or value is None else _SUM.match(code.text(value))
    if name is None or value is None or match is None or not re.search(rf"\* {code.text(name)}\b", kernel.source):
        return None
    pad = int(match["pad"])
    values = _values(kernel, match["length"].replace("/", "//"))
    if pad == 0 or values is None:
        return None
    strides = [length + pad for length in values]
    groups = tuple(_groups(kernel, match["length"].replace("/", "//"), pad))
    if any(group.replace("//", "/") in code.text(code.root).split("---*/", 1)[-1] for group, _ in groups):
        return None  # the code counts the bytes by itself, too
    aligned = min(stride & -stride for stride in strides)
    pads = tuple(sorted({pad, *(aligned * times for times in _PADS)}))
    return _Stride(code.text(name), value, match["length"], pad, pads, groups) if groups else None


def _combinations(kernel: Kernel, names: frozenset[str]) -> Iterator[dict[str, int]]:
    """Every choice of values for some params."""
    known = [name for name in kernel.header.params if name in names]
    for values in itertools.product(*(kernel.header.params[name].values for name in known)):
        yield dict(zip(known, values, strict=True))


def _values(kernel: Kernel, text: str) -> list[int] | None:
    """What an expression of params can be, None if it is of anything else."""
    try:
        expression = Expression(text)
        return [expression.evaluate(names) for names in _combinations(kernel, expression.names)]
    except ExpressionError:
        return None


def _groups(kernel: Kernel, length: str, pad: int) -> Iterator[tuple[str, int]]:
    """Expressions in parentheses of `shared` that are a fixed multiple of the stride whatever the params are.

    Nothing if some launch asks for shared memory without one: how much more it needs cannot be told then.
    """
    found: dict[str, int] = {}
    for launch in kernel.header.launches:
        here = {group: _times(kernel, group, length, pad) for group in _GROUP.findall(launch.shared.text)}
        fitting = {group: times for group, times in here.items() if times is not None}
        if not fitting and launch.shared.text != "0":
            return
        found |= fitting
    yield from sorted(found.items())


def _times(kernel: Kernel, group: str, length: str, pad: int) -> int | None:
    try:
        bytes_of, stride = Expression(group), Expression(f"{length} + {pad}")
        ratios = {
            (bytes_of.evaluate(names) % stride.evaluate(names), bytes_of.evaluate(names) // stride.evaluate(names))
            for names in _combinations(kernel, bytes_of.names | stride.names)
        }
    except ExpressionError:
        return None
    rest, times = ratios.pop()
    return times if not ratios and not rest and times in _SIZES else None


def _padded(code: Code, stride: _Stride, pad: int) -> str:
    value = stride.value
    source = code.edited([Edit(value.start_byte, value.end_byte, f"{stride.length} + {stride.param}")])
    for group, times in stride.groups:
        length = stride.length.replace("/", "//")
        source = replace_in(
            source, ("shared", "constraints"), group, f"({times} * ({length}) + {times} * {stride.param})"
        )
    return add_param(source, stride.param, stride.pads, pad)


# -- arrays of two dimensions ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Array:
    """`__shared__ T name[...][length + pad]`, always used as `name[row][column]`; rows and columns of its uses."""

    name: str
    columns: tree_sitter.Node
    length: str
    pad: int
    uses: tuple[tuple[tree_sitter.Node, tree_sitter.Node], ...]


def _arrays(code: Code) -> Iterator[_Array]:
    for declaration in code.nodes("declaration"):
        text = code.text(declaration)
        outer = declaration.child_by_field_name("declarator")
        if "__shared__" not in text or "extern" in text or outer is None or outer.type != "array_declarator":
            continue
        inner, columns = outer.child_by_field_name("declarator"), outer.child_by_field_name("size")
        if inner is None or columns is None or inner.type != "array_declarator":
            continue
        base = inner.child_by_field_name("declarator")
        if base is None or base.type != "identifier":
            continue
        uses = _uses(code, code.text(base), base)
        match = _SUM.match(code.text(columns))
        length, pad = (match["length"], int(match["pad"])) if match else (code.text(columns), 0)
        if uses:
            yield _Array(code.text(base), columns, length, pad, uses)


def _uses(code: Code, name: str, declared: tree_sitter.Node) -> tuple[tuple[tree_sitter.Node, tree_sitter.Node], ...]:
    """Row and column of every use as `name[row][column]`; nothing if it is used, or declared, in another way too."""
    found: list[tuple[tree_sitter.Node, tree_sitter.Node]] = []
    for node in code.nodes("identifier"):
        if code.text(node) != name or node.start_byte == declared.start_byte:
            continue
        row = node.parent
        element = None if row is None else row.parent
        if row is None or element is None or {row.type, element.type} != {"subscript_expression"}:
            return ()
        if element.parent is not None and element.parent.type == "pointer_expression":
            return ()  # what else is reached from that address cannot be told
        indices = [_index(part) for part in (row, element)]
        if indices[0] is None or indices[1] is None:
            return ()
        if any(other[0].start_byte < element.end_byte and row.start_byte < other[1].end_byte for other in found):
            return ()  # one use inside another
        found.append((indices[0], indices[1]))
    return tuple(found)


def _index(node: tree_sitter.Node) -> tree_sitter.Node | None:
    listed = node.named_children[1:]
    return listed[0].named_children[0] if len(listed) == 1 and len(listed[0].named_children) == 1 else None


def _powers_of_two(kernel: Kernel, length: str) -> bool:
    values = _values(kernel, length.replace("/", "//")) or [0]
    return all(value > 1 and value & (value - 1) == 0 for value in values)


def _swizzled(code: Code, array: _Array) -> str:
    edits = []
    for row, column in array.uses:
        mask = f"({array.length} < {_BANKS} ? {array.length} : {_BANKS}) - 1"
        text = f"({code.text(column)}) ^ (({code.text(row)}) & ({mask}))"
        edits.append(Edit(column.start_byte, column.end_byte, text))
    return code.edited(edits)
