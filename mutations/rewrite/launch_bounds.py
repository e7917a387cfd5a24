"""Blocks per SM that the compiler makes room for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit

_BLOCKS: Final = (1, 2, 3, 4, 6, 8)


class LaunchBounds(Rule):
    """Sets the second argument of `__launch_bounds__`: fewer registers for more resident blocks, or the reverse."""

    name = "launch_bounds"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each kernel with each other number of blocks, and without one."""
        for function in code.kernels():
            for bounds in code.nodes("launch_bounds", function):
                threads, *rest = [code.text(node) for node in bounds.named_children if node.type != "comment"]
                old = rest[0] if rest else None
                for blocks in (*_BLOCKS, None):
                    text = None if blocks is None else str(blocks)
                    if text != old:
                        inside = threads if text is None else f"{threads}, {text}"
                        source = code.edited([Edit(bounds.start_byte, bounds.end_byte, f"__launch_bounds__({inside})")])
                        yield Rewritten(
                            source, f"{text or 'any number of'} blocks per SM instead of {old or 'any number'}"
                        )
