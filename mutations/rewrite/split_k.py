"""Split-K: the loop of one output is shared by several blocks, whose parts a second kernel adds up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fitness.kernel import Kernel, Launch
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.sums import DotKernel, dot_kernel
from mutations.rewrite.syntax import Code, Edit
from mutations.rewrite.toml import add_launch, add_param, add_workspace, set_launch, strings

_SPLITS: Final = (2, 3, 4, 8, 16)
_THREAD: Final = "((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x)"
_SLOT: Final = f"(blockIdx.x * (blockDim.x * blockDim.y * blockDim.z) + {_THREAD})"


class SplitK(Rule):
    """Every thread leaves its share of the sum in memory; a copy of the kernel, with the loop replaced, finishes.

    Parts are float32 and are added in the order of the splits: results do not depend on which block ran first.
    """

    name = "split_k"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """The only kernel of a source with one launch on a grid along x and one sum for each thread."""
        found = dot_kernel(code)
        launches = kernel.header.launches
        if found is None or len(launches) != 1 or "SPLITS" in kernel.params or kernel.header.workspaces:
            return
        launch = launches[0]
        if [extent.text for extent in launch.grid[1:]] != ["1", "1"] or "blockIdx.y" in kernel.source:
            return
        if "gridDim" in kernel.source:
            return
        for splits in _SPLITS[::2]:
            yield Rewritten(_source(code, found, launch, splits), f"the sum split over SPLITS = {splits} blocks")


def _source(code: Code, found: DotKernel, launch: Launch, splits: int) -> str:
    loop, total, body = found.found.loop, found.found.sum, found.body
    slot = f"partial[int64_t(split) * gridDim.x * (blockDim.x * blockDim.y * blockDim.z) + {_SLOT}]"
    share = (
        f"const int split = blockIdx.y;\n    const int split_begin = {loop.begin}, split_end = {loop.end};\n"
        f"    const int split_share = (split_end - split_begin + SPLITS * ({loop.step}) - 1) / (SPLITS * ({loop.step}))"
        f" * ({loop.step});\n"
        f"    for ({loop.type} {loop.name} = split_begin + split * split_share; "
        f"{loop.name} < min(split_end, split_begin + (split + 1) * split_share); {loop.increment}) "
    )
    first = code.edited(
        [
            Edit(loop.node.start_byte, loop.body.start_byte, share),
            Edit(loop.node.end_byte, body.end_byte - 1, f"\n    {slot} = {total};\n"),
        ],
        found.function.start_byte,
        found.function.end_byte,
    )
    again = f"#pragma unroll\n    for (int split = 0; split < SPLITS; ++split) {total} += {slot};"
    second = code.edited(
        [Edit(loop.node.start_byte, loop.node.end_byte, again)], found.function.start_byte, found.function.end_byte
    )
    first = _declared(first, launch.kernel, launch.kernel, "float* partial")
    second = _declared(second, launch.kernel, f"{launch.kernel}_sum", "const float* partial")
    both = f'{first}\n\nextern "C" {second}'
    source = code.edited([Edit(found.function.start_byte, found.function.end_byte, both)])
    return _header(source, launch, splits)


def _declared(function: str, old: str, new: str, parameter: str) -> str:
    """The function under a new name with one parameter more, the first."""
    return function.replace(f"{old}(", f"{new}({parameter}, ", 1)


def _header(source: str, launch: Launch, splits: int) -> str:
    grid, block = launch.grid[0].text, [extent.text for extent in launch.block]
    threads = " * ".join(f"({extent})" for extent in block)
    when = launch.when.text
    finish = (
        f'kernel = "{launch.kernel}_sum"\ngrid   = {strings([grid])}\nblock  = {strings(block)}\n'
        f'shared = "{launch.shared.text}"\nargs   = {strings(["partial", *launch.args])}\nwhen   = "{when}"\n'
    )
    source = set_launch(source, "grid", strings([grid, "SPLITS"]))
    source = set_launch(source, "args", strings(["partial", *launch.args]))
    source = add_launch(source, finish)
    source = add_workspace(
        source, f'name  = "partial"\nbytes = "SPLITS * ({grid}) * {threads} * 4"\ninit  = "poison"\n'
    )
    return add_param(source, "SPLITS", _SPLITS, splits)
