"""Order of two nested loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit, counted_loop, leaves, loops, statements

if TYPE_CHECKING:
    import tree_sitter


class Interchange(Rule):
    """Swaps a loop with the one that is its whole body, where the inner bounds do not depend on the outer variable.

    What is summed up is then summed in another order. Loops that are left early or hold a barrier stay.
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
            if outer.name in _names(code, inner.node, heads[1][1]):
                continue
            first, second = (code.between(*head) for head in heads)
            edits = [Edit(*heads[0], second), Edit(*heads[1], first)]
            row = outer.node.start_point[0] + 1
            yield Rewritten(code.edited(edits), f"loop over {inner.name} outside that over {outer.name}, line {row}")


def _head(loop: tree_sitter.Node) -> tuple[int, int]:
    """From `for` to the closing parenthesis."""
    close = next(child for child in loop.children if child.type == ")")
    return loop.start_byte, close.end_byte


def _names(code: Code, loop: tree_sitter.Node, end: int) -> set[str]:
    return {code.text(node) for node in code.nodes("identifier", loop) if node.end_byte <= end}
