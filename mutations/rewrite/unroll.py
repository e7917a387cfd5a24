"""Unroll factor of a loop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit, loops

_FACTORS: Final = (1, 2, 4, 8)
_PRAGMA: Final = re.compile(r"[ \t]*#[ \t]*pragma[ \t]+unroll[ \t]*(\d+)?[ \t]*\Z")


class Unroll(Rule):
    """Writes or changes `#pragma unroll N` in front of a loop: N = 1 keeps it rolled."""

    name = "unroll"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each loop that stands on its own line with each other factor; loops unrolled in full stay so."""
        for loop in loops(code):
            if not code.starts_line(loop.node):
                continue
            line = code.line_start(loop.node.start_byte)
            above = code.line_start(line - 1) if line else 0
            pragma = _PRAGMA.match(code.between(above, line - 1)) if line else None
            if pragma is not None and pragma[1] is None:
                continue  # its registers are indexed by the loop variable
            old = pragma[1] if pragma else None
            start = above if pragma else line
            row = loop.node.start_point[0] + 1
            for factor in _FACTORS:
                if str(factor) != old:
                    source = code.edited([Edit(start, line, f"#pragma unroll {factor}\n")])
                    yield Rewritten(
                        source, f"loop over {loop.name} in line {row} by {factor} instead of {old or 'auto'}"
                    )
