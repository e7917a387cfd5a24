"""Warp-shuffle reduction: a warp makes a sum that a thread made alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.sums import DotKernel, dot_kernel
from mutations.rewrite.syntax import Code, Edit
from mutations.rewrite.toml import add_constraint, set_default, set_launch, strings

_SHIFTED: Final = {"threadIdx.x": "threadIdx.y", "threadIdx.y": "threadIdx.z", "blockDim.x": "blockDim.y",
                   "blockDim.y": "blockDim.z"}  # fmt: skip
_MOST_THREADS: Final = 1024


class WarpReduction(Rule):
    """The 32 lanes of a warp take every 32nd step of the loop of one output and add up by `__shfl_xor_sync`.

    The lanes become the x dimension of the block, what was x and y becomes y and z: neighbouring lanes read
    neighbouring elements of the row of W. Blocks hold fewer outputs, so params that shape the block shrink.
    """

    name = "warp_reduction"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """The only kernel of a source with one launch and one sum for each thread."""
        found = dot_kernel(code)
        launches = kernel.header.launches
        if found is None or len(launches) != 1 or "threadIdx.z" in kernel.source:
            return
        x, y, z = (extent.text for extent in launches[0].block)
        params = _smaller(kernel)
        if z != "1" or params is None:
            return
        source = code.edited(_edits(code, found))
        source = set_launch(source, "block", strings(["32", x, y] if y != "1" else ["32", x]))
        for name, value in params.items():
            source = set_default(source, name, value)
        source = add_constraint(source, f"32 * ({x}) * ({y}) <= {_MOST_THREADS}")
        changed = ", ".join(f"{name} = {value}" for name, value in params.items())
        yield Rewritten(source, f"a warp for each output, {changed or 'params as they are'}", params)


def _edits(code: Code, kernel: DotKernel) -> list[Edit]:
    loop, total = kernel.found.loop, kernel.found.sum
    edits = [
        Edit(node.start_byte, node.end_byte, _SHIFTED[code.text(node)])
        for node in code.nodes("field_expression", kernel.function)
        if code.text(node) in _SHIFTED
    ]
    edits += [
        Edit(node.start_byte, node.end_byte, f"__launch_bounds__(32 * ({code.text(node.named_children[0])}))")
        for node in code.nodes("launch_bounds", kernel.function)
    ]
    head = f"for ({loop.type} {loop.name} = {loop.begin} + int(threadIdx.x) * ({loop.step}); {loop.name} < {loop.end}; "
    edits.append(Edit(loop.node.start_byte, loop.body.start_byte, f"{head}{loop.name} += 32 * ({loop.step})) "))
    reduction = (
        "\n#pragma unroll\n    for (int distance = 16; distance > 0; distance /= 2)\n"
        f"        {total} += __shfl_xor_sync(0xffffffffu, {total}, distance);\n    if (threadIdx.x != 0) return;"
    )
    return [*edits, Edit(loop.node.end_byte, loop.node.end_byte, reduction)]


def _smaller(kernel: Kernel) -> dict[str, int] | None:
    """Values of the params that shape the block such that 32 times as many threads fit, nearest to the old product."""
    x_extent, y_extent = kernel.header.launches[0].block[:2]
    names = sorted((x_extent.names | y_extent.names) & kernel.header.params.keys())
    best: dict[str, int] | None = None
    most = 0
    for values in itertools.product(*(sorted(kernel.header.params[name].values) for name in names)):
        params = {**kernel.params, **dict(zip(names, values, strict=True))}
        threads = x_extent.evaluate(params) * y_extent.evaluate(params)
        if kernel.feasible(params) and most < threads <= _MOST_THREADS // 32:
            best, most = {name: params[name] for name in names if params[name] != kernel.params[name]}, threads
    return best
