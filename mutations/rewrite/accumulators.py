"""Sums in several registers: independent chains of additions instead of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.sums import SumLoop, sum_loops
from mutations.rewrite.syntax import Code, Edit

_CHAINS: Final = (2, 4)


class Accumulators(Rule):
    """Splits a loop that adds to one float into two or four sums, which hides the latency of the addition."""

    name = "accumulators"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each such loop with each number of chains."""
        for found in sum_loops(code):
            for chains in _CHAINS:
                node = found.loop.node
                source = code.edited([Edit(node.start_byte, node.end_byte, _split(code, found, chains))])
                yield Rewritten(source, f"{found.sum} of the loop over {found.loop.name} in {chains} registers")


def _split(code: Code, found: SumLoop, chains: int) -> str:
    loop, total = found.loop, found.sum
    names = [total, *(f"{total}_{i}" for i in range(1, chains))]
    declared = ", ".join(f"{name} = 0.0f" for name in names[1:])
    bodies = [
        "{ " + code.replaced(loop.body, {total: name, loop.name: f"({loop.name} + {i} * ({loop.step}))"}) + " }"
        for i, name in enumerate(names)
    ]
    last = f"{loop.name} + {chains - 1} * ({loop.step})"
    return "\n".join(
        (
            "{",
            f"float {declared};",
            f"{loop.type} {loop.name} = {loop.begin};",
            f"for (; {last} < {loop.end}; {loop.name} += {chains} * ({loop.step})) {{",
            *bodies,
            "}",
            f"for (; {loop.name} < {loop.end}; {loop.increment}) {code.text(loop.body)}",
            f"{total} += {' + '.join(names[1:])};",
            "}",
        )
    )
