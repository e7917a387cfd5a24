"""Block rasterisation order: in which order blocks walk over the tiles of Y."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit
from mutations.rewrite.toml import add_param

if TYPE_CHECKING:
    import tree_sitter

_GRID: Final = re.compile(r"cdiv\([^()]*\) \* cdiv\([^()]*\)\Z")
_GROUPED: Final = """\
// Blocks walk down RASTER of the `tiles` of one dimension before they move on in the other: both operands stay in L2.
__device__ __forceinline__ int raster_fast(int tiles) {
    const int others = gridDim.x / tiles, first = blockIdx.x / (RASTER * others) * RASTER;
    return first + blockIdx.x % (RASTER * others) % min(tiles - first, RASTER);
}
__device__ __forceinline__ int raster_slow(int tiles) {
    const int others = gridDim.x / tiles, first = blockIdx.x / (RASTER * others) * RASTER;
    return blockIdx.x % (RASTER * others) / min(tiles - first, RASTER);
}

"""


class Raster(Rule):
    """For kernels that split `blockIdx.x` by `% tiles` and `/ tiles`: the other dimension first, or in groups."""

    name = "raster"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Both orders, if all uses of `blockIdx.x` are of the two forms and the grid is a product of two."""
        if not all(_GRID.match(launch.grid[0].text) for launch in kernel.header.launches):
            return
        uses = [node for node in code.nodes("field_expression") if code.text(node) == "blockIdx.x"]
        splits = [split for node in uses if (split := _split(code, node)) is not None]
        if len(splits) != len(uses) or {operator for _, operator, _ in splits} != {"%", "/"}:
            return
        if len({tiles for _, _, tiles in splits}) != 1:
            return
        swapped = [
            Edit(node.start_byte, node.end_byte, f"(blockIdx.x {'/' if op == '%' else '%'} (gridDim.x / {tiles}))")
            for node, op, tiles in splits
        ]
        yield Rewritten(code.edited(swapped), "neighbouring blocks take the other dimension of the tiles")
        grouped = [
            Edit(node.start_byte, node.end_byte, f"raster_{'fast' if op == '%' else 'slow'}({tiles})")
            for node, op, tiles in splits
        ]
        at = _behind_includes(code)
        if at is not None and "RASTER" not in kernel.params:
            source = add_param(code.edited([*grouped, Edit(at, at, _GROUPED)]), "RASTER", (2, 4, 8, 16, 32), 8)
            yield Rewritten(source, "blocks walk over the tiles in groups of RASTER = 8")


def _split(code: Code, node: tree_sitter.Node) -> tuple[tree_sitter.Node, str, str] | None:
    """`blockIdx.x % tiles` or `blockIdx.x / tiles` around a use of `blockIdx.x`: node, operator, tiles."""
    parent = node.parent
    if parent is None or parent.type != "binary_expression" or parent.children[0] != node:
        return None
    operator, right = parent.children[1].type, parent.children[2]
    return (parent, operator, code.text(right)) if operator in "%/" and right.type == "identifier" else None


def _behind_includes(code: Code) -> int | None:
    """Where the line after the last include begins."""
    includes = list(code.nodes("preproc_include"))
    return includes[-1].end_byte if includes else None
