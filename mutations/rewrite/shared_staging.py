"""Shared-memory staging: what several threads of a block read is read once, together, and kept in shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel, Launch
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.sums import SumLoop, sum_loops
from mutations.rewrite.syntax import Code, Edit, counted_loop, leaves, loaded
from mutations.rewrite.threads import (
    Dims,
    Prelude,
    element_type,
    in_code,
    only_launch,
    pragma_start,
    prelude,
    with_threads,
)
from mutations.rewrite.toml import add_constraint, add_param

if TYPE_CHECKING:
    import tree_sitter

_DEPTHS: Final = (16, 32, 64, 128)
_SMALL: Final = frozenset({"in_t", "out_t", "__half", "__nv_bfloat16", "float", "int", "int32_t", "uint32_t"})
"""Element types of 4 bytes at most."""
_STATIC_BYTES: Final = 49152
"""Shared memory that a kernel may declare without asking for more at launch (CUDA C++ Programming Guide)."""


@dataclass(frozen=True)
class _Place:
    """A loop that sums, the loops of its kernel around it (outermost first), and what it reads through pointers."""

    found: SumLoop
    function: tree_sitter.Node
    launch: Launch
    prelude: Prelude
    around: tuple[tree_sitter.Node, ...]
    loads: tuple[tuple[tree_sitter.Node, str, str], ...]  # `pointer[variable]`, the pointer, its element type

    @property
    def outermost(self) -> tree_sitter.Node:
        return self.around[0] if self.around else self.found.loop.node

    def bounds(self) -> Dims:
        """The components of threadIdx that decide which loops run how often."""
        threads, loops = self.prelude.threads, [counted_loop(self.prelude.code, node) for node in self.around]
        texts = [text for loop in (*loops, self.found.loop) if loop for text in (loop.begin, loop.end, loop.step)]
        return frozenset().union(*(threads.of_text(text) for text in texts))


class SharedStaging(Rule):
    """Of a loop that reads `p[i]` for i, i + 1, ..., stretches of `p` go to shared memory first.

    By a warp, where all its lanes read the same: 32 elements in one access, as coalesced row caching does
    (GE-SpMM, arXiv 2007.03179). By a block, where threads along one of its dimensions read the same: a tile.
    """

    name = "shared_staging"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each loop that only sums and counts by one, with each operand its threads share, and with all of them."""
        for place in _places(kernel, code):
            for loads in _choices(_by_warp(place)):
                names = ", ".join(sorted({pointer for _, pointer, _ in loads}))
                source = add_constraint(_warp_source(code, place, loads), f"({place.launch.block[0].text}) % 32 == 0")
                yield Rewritten(source, f"{names} staged in shared memory, 32 elements a warp")
            for loads in _choices(_by_block(place)):
                names = ", ".join(sorted({pointer for _, pointer, _ in loads}))
                for depth in _DEPTHS[::2]:
                    source = _block_header(_block_source(code, place, loads), place, loads, depth)
                    yield Rewritten(source, f"{names} staged in shared memory, STAGE = {depth} elements a block")


_Loads = Sequence[tuple["tree_sitter.Node", str, str]]


def _places(kernel: Kernel, code: Code) -> Iterator[_Place]:
    for function in code.kernels():
        launch = only_launch(kernel, code, function)
        body = function.child_by_field_name("body")
        text = code.text(function)
        if launch is None or body is None or "__sync" in text or "__shared__" in text or "STAGE" in kernel.params:
            continue
        for found in sum_loops(code):
            loop = found.loop
            around = _around(code, loop.node, body)
            if loop.step != "1" or around is None:
                continue
            before = prelude(code, function, around[0] if around else loop.node)
            loads = tuple(_loads(code, function, found))
            if before is not None and loads and not _changed(code, function, before):
                yield _Place(found, function, launch, before, around, loads)


def _around(code: Code, loop: tree_sitter.Node, body: tree_sitter.Node) -> tuple[tree_sitter.Node, ...] | None:
    """The counted loops between the kernel's body and a loop, None if it stands in anything else."""
    found: list[tree_sitter.Node] = []
    node = loop
    while node.parent is not None and node.parent != body:
        node = node.parent
        if node.type == "for_statement" and counted_loop(code, node) is not None:
            found.append(node)
        elif node.type != "compound_statement":
            return None
    if found and leaves(code, found[-1]):
        return None
    return tuple(reversed(found))


def _changed(code: Code, function: tree_sitter.Node, before: Prelude) -> bool:
    """True if a name that the prelude computes with is assigned to: what it holds later is another thing."""
    parts = (*before.declarations, *before.conditions)
    used = [code.text(node) for part in parts for node in code.nodes("identifier", part)]
    declared = {name for declaration in before.declarations for name in before.names(declaration)}
    targets = {
        code.text(left)
        for node in code.nodes("assignment_expression", function)
        if (left := node.child_by_field_name("left")) is not None
    }
    return any(used.count(name) > 1 for name in declared & targets)


def _loads(code: Code, function: tree_sitter.Node, found: SumLoop) -> Iterator[tuple[tree_sitter.Node, str, str]]:
    for node in code.nodes("subscript_expression", found.loop.body):
        argument = node.child_by_field_name("argument")
        pointer = "" if argument is None else code.text(argument)
        if pointer.isidentifier() and code.text(node)[len(pointer) :] == f"[{found.loop.name}]":
            kind = element_type(code, function, pointer)
            value = loaded(code, node)
            if value is not None and kind in _SMALL:
                yield value, pointer, kind


def _choices(loads: _Loads) -> Iterator[_Loads]:
    """The loads of each pointer by itself, then all."""
    pointers = sorted({pointer for _, pointer, _ in loads})
    for pointer in pointers:
        yield [load for load in loads if load[1] == pointer]
    if len(pointers) > 1:
        yield loads


# -- by a warp ---------------------------------------------------------------------------------------------------------


def _by_warp(place: _Place) -> _Loads:
    """Loads that are the same in all lanes of a warp, if x is as long as warps and the loops run alike there."""
    lanes = frozenset("x")
    if place.bounds() & lanes or _early(place, lanes) is None:
        return ()
    return [load for load in place.loads if not place.prelude.threads.of_text(load[1]) & lanes]


def _early(place: _Place, dims: Dims) -> list[Edit] | None:
    """Early returns that depend on `dims` put off until the loops are over: all threads must reach the barriers.

    None if the threads that would have left might then read where they must not.
    """
    before, code = place.prelude, place.prelude.code
    put_off = [node for node in before.conditions if before.threads.of(node) & dims]
    if not put_off:
        return []
    if before.reads_memory(dims) or len(before.exits) != 1:
        return None
    kept = [node for node in before.conditions if node not in put_off]
    text = f"if ({' || '.join(code.text(node) for node in kept)}) return;\n    " if kept else ""
    (leaving,) = before.exits
    text += f"const bool idle = {' || '.join(code.text(node) for node in put_off)};"
    end = place.outermost.end_byte
    return [Edit(leaving.start_byte, leaving.end_byte, text), Edit(end, end, "\n    if (idle) return;")]


def _guard(place: _Place, dims: Dims) -> str:
    before = place.prelude
    return "if (!idle)" if any(before.threads.of(node) & dims for node in before.conditions) else ""


def _inner(code: Code, place: _Place, loads: _Loads, rows: Mapping[str, tuple[str, str]], depth: str) -> str:
    """The loop over one stretch of `depth` elements; `rows` gives the indices around the element's, by pointer."""
    loop, name = place.found.loop, place.found.loop.name
    edits = [
        Edit(node.start_byte, node.end_byte, f"{pointer}_stage{before}[{name} - {name}_stage]{behind}")
        for node, pointer, _ in loads
        for before, behind in [rows[pointer]]
    ]
    body = code.edited(edits, loop.body.start_byte, loop.body.end_byte)
    pragma = code.between(pragma_start(code, loop.node), loop.node.start_byte).strip()
    condition = f"{name} < {name}_stage + {depth} && {name} < {name}_end"
    head = f"for ({loop.type} {name} = {name}_stage; {condition}; ++{name}) {body}"
    return f"{pragma}\n{head}" if pragma else head


def _warp_source(code: Code, place: _Place, loads: _Loads) -> str:
    loop, name = place.found.loop, place.found.loop.name
    threads = " * ".join(in_code(extent.text) for extent in place.launch.block)
    types = dict(sorted({pointer: kind for _, pointer, kind in loads}.items()))
    text = "\n".join(
        (
            "{",
            *(f"__shared__ {kind} {pointer}_stage[{threads} / 32][32];" for pointer, kind in types.items()),
            "const int stage_lane = threadIdx.x % 32;",
            "const int stage_warp = "
            "((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) / 32;  // rows of x are whole warps",
            f"const {loop.type} {name}_end = {loop.end};",
            f"for ({loop.type} {name}_stage = {loop.begin}; {name}_stage < {name}_end; {name}_stage += 32) {{",
            "__syncwarp();",
            f"if ({name}_stage + stage_lane < {name}_end) {{",
            *(f"{pointer}_stage[stage_warp][stage_lane] = {pointer}[{name}_stage + stage_lane];" for pointer in types),
            "}",
            "__syncwarp();",
            _guard(place, frozenset("x")),
            _inner(code, place, loads, dict.fromkeys(types, ("[stage_warp]", "")), "32"),
            "}",
            "}",
        )
    )
    return _replaced(code, place, text, frozenset("x"))


def _replaced(code: Code, place: _Place, text: str, dims: Dims) -> str:
    """The source with the loop replaced and early returns put off."""
    node = place.found.loop.node
    edits = [Edit(pragma_start(code, node), node.end_byte, text), *(_early(place, dims) or [])]
    return code.edited(edits)


# -- by a block --------------------------------------------------------------------------------------------------------


def _by_block(place: _Place) -> _Loads:
    """Loads that depend on one component of threadIdx at most while the block has others, if all run alike."""
    threads = place.prelude.threads
    if place.around or place.bounds() or _early(place, frozenset("xyz")) is None:
        return ()
    used = {dim for dim, extent in zip("xyz", place.launch.block, strict=True) if extent.text != "1"}
    found = []
    for load in place.loads:
        dims = threads.of_text(load[1])
        if len(dims) <= 1 and dims < used:
            found.append(load)
    return found


def _rows(place: _Place, pointer: str) -> tuple[str, str]:
    """The component of threadIdx a pointer depends on, and its extent in a header's words; "" and "1" if on none."""
    dims = place.prelude.threads.of_text(pointer)
    for dim, extent in zip("xyz", place.launch.block, strict=True):
        if dim in dims:
            return dim, extent.text
    return "", "1"


def _copy(code: Code, place: _Place, pointer: str) -> str:
    """All threads of the block copy the next stretch of every row; neighbours take neighbouring elements of a row."""
    name, before = place.found.loop.name, place.prelude
    dim, extent = _rows(place, pointer)
    other, dims = {dim: "stage_row"} if dim else {}, frozenset(dim)
    conditions = [node for node in before.conditions if before.threads.of(node) <= dims]
    wanted = [pointer, *(found for node in conditions for found in code.identifiers(node))]
    inside = [f"!({with_threads(code, node, other)})" for node in conditions]
    at = f"{name}_stage + stage_item % STAGE"
    return "\n".join(
        (
            f"for (int stage_item = stage_thread; stage_item < {in_code(extent)} * STAGE; "
            "stage_item += stage_threads) {",
            "const int stage_row = stage_item / STAGE;",
            *(with_threads(code, node, other) for node in before.needed(wanted, dims)),
            f"if ({' && '.join([*inside, f'{at} < {name}_end'])})",
            f"{pointer}_stage[stage_item % STAGE][stage_row] = {pointer}[{at}];",
            "}",
        )
    )


def _block_source(code: Code, place: _Place, loads: _Loads) -> str:
    loop, name = place.found.loop, place.found.loop.name
    types = dict(sorted({pointer: kind for _, pointer, kind in loads}.items()))
    threads = " * ".join(in_code(extent.text) for extent in place.launch.block)
    rows = {pointer: ("", f"[{_own(place, pointer)}]") for pointer in types}
    text = "\n".join(
        (
            "{",
            *(
                f"__shared__ {kind} {pointer}_stage[STAGE][{in_code(_rows(place, pointer)[1])} + 1];"
                for pointer, kind in types.items()
            ),
            "const int stage_thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;",
            f"constexpr int stage_threads = {threads};",
            f"const {loop.type} {name}_end = {loop.end};",
            f"for ({loop.type} {name}_stage = {loop.begin}; {name}_stage < {name}_end; {name}_stage += STAGE) {{",
            "__syncthreads();",
            *(_copy(code, place, pointer) for pointer in types),
            "__syncthreads();",
            _guard(place, frozenset("xyz")),
            _inner(code, place, loads, rows, "STAGE"),
            "}",
            "}",
        )
    )
    return _replaced(code, place, text, frozenset("xyz"))


def _own(place: _Place, pointer: str) -> str:
    dim, _ = _rows(place, pointer)
    return f"threadIdx.{dim}" if dim else "0"


def _block_header(source: str, place: _Place, loads: _Loads, depth: int) -> str:
    rows = " + ".join(f"({_rows(place, pointer)[1]}) + 1" for pointer in sorted({pointer for _, pointer, _ in loads}))
    source = add_param(source, "STAGE", _DEPTHS, depth)
    return add_constraint(source, f"4 * STAGE * ({rows}) <= {_STATIC_BYTES}")  # elements are of 4 bytes at most
