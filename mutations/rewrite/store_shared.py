"""Store through shared memory: sums change threads there, so that neighbouring threads write neighbouring addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel, Launch
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.sums import DotKernel, dot_kernel
from mutations.rewrite.syntax import Code, Edit, statements
from mutations.rewrite.threads import Prelude, in_code, only_launch, pragma_start, prelude, with_threads
from mutations.rewrite.toml import add_constraint

if TYPE_CHECKING:
    import tree_sitter

_STATIC_BYTES: Final = 49152
"""Shared memory that a kernel may declare without asking for more at launch (CUDA C++ Programming Guide)."""
_OWN: Final = {"x": "store_x", "y": "store_y"}


class StoreShared(Rule):
    """Every thread leaves its sum in shared memory; what follows the loop is then done by the block transposed.

    Thread t of the block takes over the output at (t // extent of y, t % extent of y) instead of the one at
    (t % extent of x, t // extent of x): the other dimension of Y runs along the lanes of a warp.
    """

    name = "store_shared"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """The only kernel of a source with one sum for each thread of a two-dimensional block."""
        found = dot_kernel(code)
        launch = None if found is None else only_launch(kernel, code, found.function)
        if found is None or launch is None or launch.block[1].text == "1" or launch.block[2].text != "1":
            return
        before = prelude(code, found.function, found.found.loop.node)
        if before is None or len(before.exits) > 1 or (before.exits and before.reads_memory(frozenset("xy"))):
            return
        source = add_constraint(_source(code, found, before, launch), _fits(launch))
        yield Rewritten(
            source, "sums change threads in shared memory, so that lanes write along the other dimension of Y"
        )


def _fits(launch: Launch) -> str:
    x, y = (extent.text for extent in launch.block[:2])
    return f"4 * ({y}) * (({x}) + 1) <= {_STATIC_BYTES}"


def _source(code: Code, kernel: DotKernel, before: Prelude, launch: Launch) -> str:
    loop, total = kernel.found.loop.node, kernel.found.sum
    x, y = (in_code(extent.text) for extent in launch.block[:2])
    start = pragma_start(code, loop)
    edits = [
        Edit(node.start_byte, node.end_byte, f"const bool idle = {_condition(code, node)};") for node in before.exits
    ]
    guard = "if (!idle)\n" if before.exits else ""
    behind = "\n    ".join(_behind(code, kernel))
    text = (
        f"{guard}{code.between(start, loop.end_byte)}\n"
        f"    __shared__ float {total}_store[{y}][{x} + 1];  // one more: a column lies in different banks\n"
        f"    {total}_store[threadIdx.y][threadIdx.x] = {total};\n"
        "    __syncthreads();\n"
        "    {\n"
        "    const int store_thread = threadIdx.y * blockDim.x + threadIdx.x;\n"
        "    const int store_x = store_thread / blockDim.y, store_y = store_thread % blockDim.y;\n"
        f"    {behind}\n"
        "    }\n"
    )
    edits.append(Edit(start, kernel.body.end_byte - 1, text))
    return code.edited(edits)


def _condition(code: Code, node: tree_sitter.Node) -> str:
    condition = node.child_by_field_name("condition")
    assert condition is not None, "an if has one"
    return code.text(condition)


def _behind(code: Code, kernel: DotKernel) -> Iterator[str]:
    """The kernel as the thread at (store_x, store_y) runs it, its sum read instead of made."""
    loop, total = kernel.found.loop.node, kernel.found.sum
    for node in statements(kernel.body):
        if node == loop:
            yield f"{total} = {total}_store[store_y][store_x];"
        else:
            yield with_threads(code, node, _OWN)
