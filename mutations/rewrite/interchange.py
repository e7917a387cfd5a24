"""Order of two nested loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit, Loop, counted_loop, leaves, loops, registers, statements

if TYPE_CHECKING:
    import tree_sitter


class Interchange(Rule):
    """Swaps a loop with the one that is its whole body, where the inner bounds do not depend on the outer variable.

    What is summed up is then summed in another order. Loops that are left early or hold a barrier stay; so do two
    unrolled ones around a sum in registers that has the same order either way: the compiler gives the same code.
    """

    name = "interchange"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each such pair."""
        for outer in loops(code):
            inside = statements(outer.body)
            if len(inside) != 1 or inside[0].type != "for_statement":
                continue
            inner = counted_loop(code, inside[0])
            if inner is None or leaves(code, inner.body) or "__sync" in code.text(inner.body):
                continue
            heads = [_head(loop.node) for loop in (outer, inner)]
            if outer.name in _names(code, inner.node, heads[1][1]) or _indifferent(code, outer, inner):
                continue
            first, second = (code.between(*head) for head in heads)
            edits = [Edit(*heads[0], second), Edit(*heads[1], first)]
            row = outer.node.start_point[0] + 1
            yield Rewritten(code.edited(edits), f"loop over {inner.name} outside that over {outer.name}, line {row}")


def _indifferent(code: Code, outer: Loop, inner: Loop) -> bool:
    """True if unrolling both loops leaves, for each cell of an array in registers, the same sum in the same order."""
    body = statements(inner.body)
    if len(body) != 1 or not (_unrolled(code, outer.node) and _unrolled(code, inner.node)):
        return False
    assignment = body[0].named_children[0] if body[0].type == "expression_statement" else body[0]
    target = assignment.child_by_field_name("left")
    if assignment.type != "assignment_expression" or target is None:
        return False
    calls = {code.text(call.children[0]) for call in code.nodes("call_expression", assignment)}
    if calls - {"fmaf"} or not _arrays_of(code, assignment) <= registers(code):
        return False
    return len({outer.name, inner.name} & code.identifiers(target)) == 1  # the other loop adds to the same cells


def _unrolled(code: Code, loop: tree_sitter.Node) -> bool:
    """True for `#pragma unroll` without a number on the line before."""
    start = code.line_start(loop.start_byte)
    before = code.data[code.line_start(max(start - 1, 0)) : start]
    return code.starts_line(loop) and before.split() == [b"#pragma", b"unroll"]


def _arrays_of(code: Code, node: tree_sitter.Node) -> set[str]:
    """Names of what is subscripted or pointed to in a node."""
    found = {code.text(each.children[0]).partition("[")[0] for each in code.nodes("subscript_expression", node)}
    return found | {code.text(each) for each in code.nodes("pointer_expression", node)}


def _head(loop: tree_sitter.Node) -> tuple[int, int]:
    """From `for` to the closing parenthesis."""
    close = next(child for child in loop.children if child.type == ")")
    return loop.start_byte, close.end_byte


def _names(code: Code, loop: tree_sitter.Node, end: int) -> set[str]:
    return {code.text(node) for node in code.nodes("identifier", loop) if node.end_byte <= end}
