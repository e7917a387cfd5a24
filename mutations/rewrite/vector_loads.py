"""Vector width of loads: neighbours in one access instead of one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.sums import SumLoop, sum_loops
from mutations.rewrite.syntax import Code, Edit, loaded

if TYPE_CHECKING:
    import tree_sitter

_WIDTHS: Final = (2, 4, 8)


class VectorLoads(Rule):
    """A loop that reads `p[i]` for i, i + 1, ... reads 2, 4 or 8 of them at once where the address allows.

    Elements in front of the first aligned address and behind the last whole vector are read one by one.
    """

    name = "vector_loads"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each loop that only sums, counts by one and indexes pointers by its variable, with each width."""
        for found in sum_loops(code):
            if found.loop.step != "1" or next(code.nodes("for_statement", found.loop.body), None) is not None:
                continue
            loads = list(_loads(code, found))
            if not loads:
                continue
            names = sorted({pointer for _, pointer in loads})
            for width in _WIDTHS:
                node = found.loop.node
                edits = [Edit(node.start_byte, node.end_byte, _vectorised(code, found, loads, width))]
                source = code.edited(edits).replace('#include "evo.cuh"', '#include "task.cuh"')
                if "task.cuh" in source:
                    yield Rewritten(source, f"loads of {', '.join(names)} {width} at a time")


_Loads = Sequence[tuple["tree_sitter.Node", str]]


def _loads(code: Code, found: SumLoop) -> Iterator[tuple[tree_sitter.Node, str]]:
    """What stands for the value of each `pointer[variable]`, and the pointer."""
    for node in code.nodes("subscript_expression", found.loop.body):
        argument = node.child_by_field_name("argument")
        pointer = "" if argument is None else code.text(argument)
        value = loaded(code, node)
        if value is not None and pointer.isidentifier() and code.text(node) == f"{pointer}[{found.loop.name}]":
            yield value, pointer


def _vectorised(code: Code, found: SumLoop, loads: _Loads, width: int) -> str:
    loop = found.loop
    name, step = loop.name, f"{loop.name}_step"
    pointers = sorted({pointer for _, pointer in loads})
    aligned = " && ".join(
        f"reinterpret_cast<uintptr_t>({p} + {name}) % ({width} * sizeof(*{p})) == 0" for p in pointers
    )
    vectors = [f"const auto {p}_vector = evo::load_vector<{width}>({p} + {name});" for p in pointers]
    return "\n".join(
        (
            "{",
            f"{loop.type} {name} = {loop.begin};",
            f"for (; {name} < {loop.end} && !({aligned}); ++{name}) {code.text(loop.body)}",
            f"for (; {name} + {width} <= {loop.end}; {name} += {width}) {{",
            *vectors,
            "#pragma unroll",
            f"for (int {step} = 0; {step} < {width}; ++{step}) {_with_vectors(code, found, loads, step)}",
            "}",
            f"for (; {name} < {loop.end}; ++{name}) {code.text(loop.body)}",
            "}",
        )
    )


def _with_vectors(code: Code, found: SumLoop, loads: _Loads, step: str) -> str:
    """The body with vector elements for the loads and the variable moved on for everything else."""
    body = found.loop.body
    edits = [Edit(node.start_byte, node.end_byte, f"{pointer}_vector.items[{step}]") for node, pointer in loads]
    spans = [(edit.start, edit.end) for edit in edits]
    for node in code.nodes("identifier", body):
        inside = any(start <= node.start_byte < end for start, end in spans)
        if code.text(node) == found.loop.name and not inside:
            edits.append(Edit(node.start_byte, node.end_byte, f"({found.loop.name} + {step})"))
    return code.edited(edits, body.start_byte, body.end_byte)
