"""Change of format: from compressed sparse rows to padded ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit, Loop, leaves, loops
from mutations.rewrite.toml import set_launch, set_top, strings

if TYPE_CHECKING:
    import tree_sitter

_ORDERS: Final = {"column": "int64_t({slot}) * M + {row}", "row": "int64_t({row}) * max_row + {slot}"}


class ChangeFormat(Rule):
    """A CSR kernel that walks `indptr[m]` to `indptr[m + 1]` becomes an ELLPACK one, in either order.

    The row pointers go and slots are `W.max_row` to a row; padding ends a row. Where rows are about equally long that
    spares a dependent load and, by columns, lets threads on neighbouring rows read neighbouring words.
    """

    name = "change_format"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """The only kernel of a CSR source with one such loop and natural order of rows."""
        kernels, launches = code.kernels(), kernel.header.launches
        if kernel.format.name != "csr" or len(kernels) != 1 or len(launches) != 1:
            return
        args = launches[0].args
        if "W.row_order" in args or not {"W.indptr", "W.indices", "M"} <= set(args):
            return
        names = dict(zip(args, _parameters(code, kernels[0]), strict=False))
        pointers, columns, rows = (names.get(name, "") for name in ("W.indptr", "W.indices", "M"))
        found = [loop for loop in loops(code) if _walks(loop, pointers)]
        uses = sum(code.text(node) == pointers for node in code.nodes("identifier"))
        if len(found) != 1 or uses != 3 or leaves(code, found[0].body):  # the parameter and the two ends of the loop
            return
        row = _walks(found[0], pointers)
        for order, place in _ORDERS.items():
            at = place.format(slot=f"{found[0].name}_slot", row=row).replace(" M ", f" {rows} ")
            source = code.edited([_loop(code, found[0], columns, at), *_parameter(code, kernels[0], pointers)])
            source = set_top(source, "format", f'{{ name = "ell", order = "{order}" }}')
            source = set_launch(source, "args", strings(["W.max_row" if name == "W.indptr" else name for name in args]))
            yield Rewritten(source, f"W stored in padded rows (ell, by {order}) instead of csr")


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
