"""The form several rules look for: a loop that does nothing but add to one float."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mutations.rewrite.syntax import Code, Loop, assigned, leaves, loops, statements

if TYPE_CHECKING:
    import tree_sitter


@dataclass(frozen=True)
class SumLoop:
    """A loop and the name of the float that it adds to."""

    loop: Loop
    sum: str


@dataclass(frozen=True)
class DotKernel:
    """A kernel in which every thread makes one sum in one loop: `float sum = 0.0f; for (...) ...; use of sum`."""

    function: tree_sitter.Node
    body: tree_sitter.Node
    found: SumLoop


def sum_loops(code: Code) -> Iterator[SumLoop]:
    """Counted loops that assign to a single float declared outside, add to it only, and are not left early."""
    for loop in loops(code):
        targets = assigned(code, loop.body) - {loop.name}
        if len(targets) != 1 or leaves(code, loop.body) or "__sync" in code.text(loop.body):
            continue
        (total,) = targets
        if total.isidentifier() and _is_float(code, total) and _adds_only(code, loop, total):
            yield SumLoop(loop, total)


def _is_float(code: Code, name: str) -> bool:
    declarations = [node for node in code.nodes("declaration") if code.text(node).startswith("float ")]
    return any(name in code.identifiers(node) for node in declarations)


def _adds_only(code: Code, loop: Loop, total: str) -> bool:
    """Every assignment is `sum += value` or `sum = fmaf(a, b, sum)`, and the sum is used nowhere else."""
    uses = sum(code.text(node) == total for node in code.nodes("identifier", loop.body))
    expected = 0
    for node in code.nodes("assignment_expression", loop.body):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or code.text(left) != total:
            continue
        text = code.text(right)
        if node.children[1].type == "+=":
            expected += 1
        elif node.children[1].type == "=" and text.startswith("fmaf(") and text.endswith(f", {total})"):
            expected += 2
        else:
            return False
    return uses == expected > 0


def dot_kernel(code: Code) -> DotKernel | None:
    """The only kernel of a source, if it is a `DotKernel`."""
    kernels = code.kernels()
    if len(kernels) != 1:
        return None
    body = kernels[0].child_by_field_name("body")
    if body is None or "__sync" in code.text(body) or "__shared__" in code.text(body):
        return None
    top = statements(body)
    found = [item for item in sum_loops(code) if item.loop.node in top]
    if len(found) != 1 or sum(node.type == "for_statement" for node in top) != 1:
        return None
    return DotKernel(kernels[0], body, found[0])
