"""Change of format, or of its option: from compressed sparse rows to padded ones, or to the same in another order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from fitness.formats import get_format
from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit, Loop, leaves, loaded, loops, statements
from mutations.rewrite.threads import prelude
from mutations.rewrite.toml import remove_param, set_launch, set_top, strings

if TYPE_CHECKING:
    import tree_sitter

_ORDERS: Final = {"column": "int64_t({slot}) * M + {row}", "row": "int64_t({row}) * max_row + {slot}"}


class ChangeFormat(Rule):
    """A CSR kernel that walks `indptr[m]` to `indptr[m + 1]` becomes an ELLPACK one, in either order.

    The row pointers go and slots are `W.max_row` to a row; padding ends a row. Where rows are about equally long that
    spares a dependent load and, by columns, lets threads on neighbouring rows read neighbouring words.

    Where a kernel takes the ends of a row in another way, the length of a padded row is found by bisection, and the
    kernel stays as it is otherwise.

    Or it stays CSR with its rows in another order: longest first, so that neighbours end together, or rows of similar
    columns next to each other, so that they meet the same rows of X. Where Y is written, a stored row gets its number.
    """

    name = "change_format"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """The only kernel of a CSR source, if it reads of the row pointers the ends of one row."""
        kernels, launches = code.kernels(), kernel.header.launches
        if kernel.format.name != "csr" or len(kernels) != 1 or len(launches) != 1:
            return
        args = launches[0].args
        if not {"W.indptr", "W.indices", "M"} <= set(args) or {"W.diagonals", "W.bins"} & set(args):
            return
        names = dict(zip(args, _parameters(code, kernels[0]), strict=False))
        found = [loop for loop in loops(code) if _walks(loop, names["W.indptr"])]
        uses = sum(code.text(node) == names["W.indptr"] for node in code.nodes("identifier"))
        walked = len(found) == 1 and uses == 3 and not leaves(code, found[0].body)  # the parameter and the loop's ends
        if walked and "W.row_order" not in args:
            yield from _reordered(code, kernels[0], kernel, found[0], _walks(found[0], names["W.indptr"]))
            yield from _padded(code, kernels[0], args, names, found[0])
        elif not walked:
            yield from _bisected(code, kernels[0], kernel, names)


def _padded(
    code: Code, function: tree_sitter.Node, args: Sequence[str], names: Mapping[str, str], loop: Loop
) -> Iterator[Rewritten]:
    """The loop over a row's slots, in either order of the arrays."""
    for order, place in _ORDERS.items():
        at = place.format(slot=f"{loop.name}_slot", row=_walks(loop, names["W.indptr"]))
        at = at.replace(" M ", f" {names['M']} ")
        source = code.edited(
            [_loop(code, loop, names["W.indices"], at), *_parameter(code, function, names["W.indptr"])]
        )
        source = set_top(source, "format", f'{{ name = "ell", order = "{order}" }}')
        source = set_launch(source, "args", strings(["W.max_row" if name == "W.indptr" else name for name in args]))
        yield Rewritten(source, f"W stored in padded rows (ell, by {order}) instead of csr")


_BISECTION: Final = """\
// The elements of the row: padding follows the last one.
    const int ell_begin = {row} * max_row;
    int ell_end = ell_begin;
    for (int padding = ell_begin + max_row; ell_end < padding;) {{
        const int middle = (ell_end + padding) / 2;
        if ({columns}[middle] >= 0)
            ell_end = middle + 1;
        else
            padding = middle;
    }}
    """


def _bisected(code: Code, function: tree_sitter.Node, kernel: Kernel, names: Mapping[str, str]) -> Iterator[Rewritten]:
    """Both ends of the row worked out in front of the first statement that needs one; rows in natural order."""
    body = function.child_by_field_name("body")
    pointers, numbers = names["W.indptr"], names.get("W.row_order", "")
    ends, stored = _indexed(code, function, pointers), _indexed(code, function, numbers) if numbers else []
    if body is None or not ends or (numbers and not stored):
        return
    rows = {index.removesuffix(" + 1") for _, index in (*ends, *stored)}
    if len(rows) != 1 or not (row := rows.pop()).isidentifier() or any(index != row for _, index in stored):
        return
    first = next(node for node in statements(body) if node.end_byte > ends[0][0].start_byte)
    edits = [Edit(node.start_byte, node.end_byte, "ell_begin" if index == row else "ell_end") for node, index in ends]
    edits += [Edit(node.start_byte, node.end_byte, row) for node, _ in stored]
    edits.append(Edit(first.start_byte, first.start_byte, _BISECTION.format(row=row, columns=names["W.indices"])))
    edits += _parameter(code, function, pointers)
    if numbers:
        edits += _without_parameter(code, function, numbers)
    source = set_top(code.edited(edits), "format", '{ name = "ell", order = "row" }')
    held = kernel.header.launches[0].args
    args = ["W.max_row" if name == "W.indptr" else name for name in held if name != "W.row_order"]
    source = set_launch(source, "args", strings(args))
    option = kernel.header.format.options.get("order")
    if option in kernel.params:
        source = remove_param(source, str(option))
    yield Rewritten(source, "W stored in padded rows (ell, by row) instead of csr, their length by bisection")


def _indexed(code: Code, function: tree_sitter.Node, name: str) -> list[tuple[tree_sitter.Node, str]]:
    """Every `name[index]` with its index; nothing if the name is used in another way too."""
    found = []
    for node in code.nodes("identifier", function):
        parent = node.parent
        if code.text(node) != name or parent is None or parent.type == "pointer_declarator":
            continue  # another name, or the parameter itself
        value = loaded(code, parent) if parent.type == "subscript_expression" else None
        if value is None or parent.named_children[0] != node:
            return []
        found.append((value, code.text(parent)[len(name) + 1 : -1]))
    return found


def _without_parameter(code: Code, function: tree_sitter.Node, name: str) -> Iterator[Edit]:
    """Takes a parameter out, with the comma behind it."""
    for parameter, own in zip(code.nodes("parameter_declaration", function), _parameters(code, function), strict=True):
        following = parameter.next_sibling
        if own == name and following is not None:
            end = following.end_byte if following.type == "," else parameter.end_byte
            yield Edit(parameter.start_byte, end, "")


def _reordered(code: Code, function: tree_sitter.Node, kernel: Kernel, loop: Loop, row: str) -> Iterator[Rewritten]:
    """The same kernel on rows in another order, if only what follows the loop says which row of Y is written."""
    body, before = function.child_by_field_name("body"), prelude(code, function, loop.node)
    if body is None or before is None or "row_order" in kernel.source:
        return
    behind = [node for node in statements(body) if node.start_byte > loop.node.end_byte]
    names = {name for node in behind for name in code.identifiers(node)}
    resting = {row}
    for declaration in before.declarations:
        if row not in before.names(declaration) and code.identifiers(declaration) & resting:
            resting |= set(before.names(declaration))
    if row not in names or (resting - {row}) & names:
        return
    uses = [node for part in behind for node in code.nodes("identifier", part) if code.text(node) == row]
    edits = [Edit(node.start_byte, node.end_byte, f"row_order[{row}]") for node in uses]
    places = dict(zip(kernel.header.launches[0].args, code.nodes("parameter_declaration", function), strict=False))
    at = places["W.indptr"].end_byte
    source = code.edited([*edits, Edit(at, at, ", const int* row_order")])
    args = [
        name
        for arg in kernel.header.launches[0].args
        for name in ((arg, "W.row_order") if arg == "W.indptr" else (arg,))
    ]
    source = set_launch(source, "args", strings(args))
    for order in get_format("csr").options["order"]:
        if order != kernel.format.options["order"]:
            child = set_top(source, "format", f'{{ name = "csr", order = "{order}" }}')
            yield Rewritten(child, f"rows of W stored by {order} instead of {kernel.format.options['order']}")


def _walks(loop: Loop, pointers: str) -> str:
    """The row a loop walks over, empty if it does not."""
    match = re.fullmatch(rf"{pointers}\[(\w+)\]", loop.begin)
    return match[1] if match and loop.end == f"{pointers}[{match[1]} + 1]" and loop.step == "1" else ""


def _loop(code: Code, loop: Loop, columns: str, at: str) -> Edit:
    slot = f"{loop.name}_slot"
    text = (
        f"for (int {slot} = 0; {slot} < max_row; ++{slot}) {{\n        const int64_t {loop.name} = {at};\n"
        f"        if ({columns}[{loop.name}] < 0) break;  // padding\n        {code.text(loop.body)}\n    }}"
    )
    return Edit(loop.node.start_byte, loop.node.end_byte, text)


def _parameters(code: Code, function: tree_sitter.Node) -> list[str]:
    """Names of a kernel's parameters in order."""
    names = []
    for parameter in code.nodes("parameter_declaration", function):
        declarator = parameter.child_by_field_name("declarator")
        names.append("" if declarator is None else code.text(declarator).lstrip("*& "))
    return names


def _parameter(code: Code, function: tree_sitter.Node, pointers: str) -> Iterator[Edit]:
    for parameter, name in zip(code.nodes("parameter_declaration", function), _parameters(code, function), strict=True):
        if name == pointers:
            yield Edit(parameter.start_byte, parameter.end_byte, "int max_row")
