"""Double buffering with cp.async: the next tile is on its way to shared memory while this one is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel, Launch
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit, Loop, assigned, counted_loop, leaves, statements
from mutations.rewrite.threads import Prelude, in_code, only_launch, pragma_start, prelude
from mutations.rewrite.toml import set_launch

if TYPE_CHECKING:
    import tree_sitter

_ALIGNMENT: Final = 16
_COPIES: Final = {"uint32_t": 4, "uint2": 8, "uint4": 16, "float": 4, "int": 4, "float2": 8, "float4": 16}
"""Types that cp.async moves whole, in bytes."""
_READ: Final = r"(?P<condition>\w+) \? \*reinterpret_cast<const (?P<type>\w+)\*>\((?P<source>.+)\) : [\w.]+"
_HELD: Final = re.compile(rf"const \w+ (?P<name>\w+) = {_READ};\Z", re.DOTALL)
_STORE: Final = re.compile(r"\*reinterpret_cast<(?P<type>\w+)\*>\((?P<target>.+)\) = (?P<value>.+);\Z", re.DOTALL)
_ARRAY: Final = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?(?P<type>[\w ]+?) (?P<name>\w+)\[\];")


@dataclass(frozen=True)
class _Staged:
    """A loop `load tiles; __syncthreads(); use them; __syncthreads();` over an `extern __shared__` array."""

    loop: Loop
    before: Prelude
    array: tree_sitter.Node
    element: str
    name: str
    tiles: tuple[tree_sitter.Node, ...]  # declarations of what points into the array
    load: tuple[tree_sitter.Node, ...]
    use: tuple[tree_sitter.Node, ...]


class DoubleBuffer(Rule):
    """Gives the tiles of such a loop a second buffer, and their copies from global memory to cp.async.

    Copies of 4, 8 or 16 bytes that go to the tile unchanged, or zero where a condition fails, become asynchronous;
    what is worked out on the way stays with the threads. PTX ISA, "cp.async"; needs sm_80.
    """

    name = "double_buffer"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """The only such loop of a source whose tiles all lie in the memory the only launch asks for."""
        functions = code.kernels()
        launch = only_launch(kernel, code, functions[0]) if len(functions) == 1 else None
        if launch is None or len(kernel.header.launches) != 1 or "cp_async" in kernel.source:
            return
        if not launch.shared.names <= kernel.header.params.keys():
            return
        found = _staged(code, functions[0])
        copies = [] if found is None else list(_copies(code, found))
        if found is None or not copies:
            return
        source = _source(code, found, launch, copies)
        yield Rewritten(
            set_launch(source, "shared", f'"cdiv({launch.shared.text}, {_ALIGNMENT}) * {2 * _ALIGNMENT}"'),
            f"tiles of the loop over {found.loop.name} in two buffers, {len(copies)} of their copies by cp.async",
        )


# -- where -------------------------------------------------------------------------------------------------------------


def _staged(code: Code, function: tree_sitter.Node) -> _Staged | None:
    body = function.child_by_field_name("body")
    loops = [] if body is None else [node for node in statements(body) if node.type == "for_statement"]
    candidates = [node for node in loops if "__syncthreads()" in code.text(node)]
    loop = counted_loop(code, candidates[0]) if len(candidates) == 1 else None
    before = None if loop is None else prelude(code, function, loop.node)
    if body is None or loop is None or before is None or before.exits or leaves(code, loop.body):
        return None
    arrays = [node for node in before.declarations if "__shared__" in code.text(node)]
    match = _ARRAY.fullmatch(code.text(arrays[0])) if len(arrays) == 1 else None
    parts = _parts(code, loop)
    if match is None or parts is None:
        return None
    tiles = _pointing(code, before, match["name"])
    found = _Staged(loop, before, arrays[0], match["type"], match["name"], tiles, *parts)
    return found if _independent(code, body, found) else None


def _parts(code: Code, loop: Loop) -> tuple[tuple[tree_sitter.Node, ...], tuple[tree_sitter.Node, ...]] | None:
    """The statements in front of the first barrier and those between both; the second ends the loop."""
    inside = statements(loop.body)
    barriers = [i for i, node in enumerate(inside) if code.text(node) == "__syncthreads();"]
    if (
        len(barriers) != 2
        or barriers[0] in (0, barriers[1] - 1)
        or barriers[1] != len(inside) - 1
        or code.text(loop.body).count("__sync") != 2
    ):
        return None
    return tuple(inside[: barriers[0]]), tuple(inside[barriers[0] + 1 : -1])


def _pointing(code: Code, before: Prelude, name: str) -> tuple[tree_sitter.Node, ...]:
    """Declarations that rest on the array, in order."""
    names, found = {name}, []
    for declaration in before.declarations:
        if code.identifiers(declaration) & names and "__shared__" not in code.text(declaration):
            names |= set(before.names(declaration))
            found.append(declaration)
    return tuple(found)


def _independent(code: Code, body: tree_sitter.Node, found: _Staged) -> bool:
    """True if loading needs nothing that using makes, and the tiles are used in the loop alone and stay in place."""
    shared = {found.name} | {name for node in found.tiles for name in found.before.names(node)}
    made = {re.split(r"\W", text, maxsplit=1)[0] for node in found.use for text in assigned(code, node)}
    read = {name for node in found.load for name in code.identifiers(node)}
    written = {text for node in (*found.load, *found.use) for text in assigned(code, node)}
    behind = [node for node in statements(body) if node.start_byte > found.loop.node.end_byte]
    later = {name for node in behind for name in code.identifiers(node)}
    carried = any(not _local(code, found, text, shared) for node in found.load for text in assigned(code, node))
    declared = any(node.type == "declaration" for node in found.load)
    return not (made & read or written & shared or later & shared or carried or declared)


def _local(code: Code, found: _Staged, target: str, shared: set[str]) -> bool:
    """True for an element of a tile, or a name declared by the loading itself."""
    if any(re.search(rf"\b{name}\b", target) for name in shared):
        return target not in shared
    own = {
        code.text(name)
        for node in found.load
        for declared in code.nodes("init_declarator", node)
        if (name := declared.child_by_field_name("declarator")) is not None
    }
    return target in own


# -- what --------------------------------------------------------------------------------------------------------------


def _copies(code: Code, found: _Staged) -> Iterator[tuple[Edit, ...]]:
    """Each copy that cp.async can make: a store of what was read, in one statement or in two that follow each other."""
    for part in found.load:
        for block in code.nodes("compound_statement", part):
            inside = statements(block)
            for first, second in zip([None, *inside], inside, strict=False):
                copy = _copy(code, block, first, second)
                if copy is not None:
                    yield copy


def _copy(
    code: Code, block: tree_sitter.Node, first: tree_sitter.Node | None, second: tree_sitter.Node
) -> tuple[Edit, ...] | None:
    store = _STORE.match(code.text(second))
    if store is None or store["type"] not in _COPIES:
        return None
    own = re.fullmatch(_READ, store["value"], re.DOTALL)
    if own is not None and own["type"] == store["type"]:
        return (Edit(second.start_byte, second.end_byte, _async(store["type"], store["target"], own)),)
    held = None if first is None else _HELD.match(code.text(first))
    if first is None or held is None or held["type"] != store["type"] or store["value"] != held["name"]:
        return None
    if sum(code.text(node) == held["name"] for node in code.nodes("identifier", block)) != 2:
        return None
    return (
        Edit(first.start_byte, first.end_byte, ""),
        Edit(second.start_byte, second.end_byte, _async(store["type"], store["target"], held)),
    )


def _async(kind: str, target: str, read: re.Match[str]) -> str:
    size = _COPIES[kind]
    return f"evo::cp_async{size}_zfill({target}, {read['source']}, {read['condition']} ? {size} : 0);"


def _source(code: Code, found: _Staged, launch: Launch, copies: list[tuple[Edit, ...]]) -> str:
    loop, name = found.loop, found.name
    edits = [edit for copy in copies for edit in copy]
    load = code.edited(edits, pragma_start(code, found.load[0]), found.load[-1].end_byte)
    tiles = "\n".join(code.text(node) for node in found.tiles)
    use = code.between(pragma_start(code, found.use[0]), found.use[-1].end_byte)
    text = f"""\
constexpr int BUFFER = evo::cdiv({in_code(launch.shared.text)}, {_ALIGNMENT}) * {_ALIGNMENT} / sizeof({found.element});
    const auto load_tiles = [&]({loop.type} {loop.name}, {found.element}* {name}) {{
{tiles}
{load}
    }};
    if ({loop.begin} < {loop.end}) load_tiles({loop.begin}, both_buffers);
    evo::cp_async_commit();
    int buffer = 0;
    for ({loop.type} {loop.name} = {loop.begin}; {loop.name} < {loop.end}; {loop.increment}) {{
        if ({loop.name} + {loop.step} < {loop.end})
            load_tiles({loop.name} + {loop.step}, both_buffers + (1 - buffer) * BUFFER);
        evo::cp_async_commit();
        evo::cp_async_wait<1>();
        __syncthreads();
        {found.element}* {name} = both_buffers + buffer * BUFFER;
{tiles}
{use}
        __syncthreads();
        buffer = 1 - buffer;
    }}
    evo::cp_async_wait<0>();"""
    array = code.text(found.array).replace(f" {name}[];", " both_buffers[];")
    moved = [Edit(node.start_byte, node.end_byte, "") for node in found.tiles]
    return code.edited(
        [
            Edit(found.array.start_byte, found.array.end_byte, array),
            *moved,
            Edit(loop.node.start_byte, loop.node.end_byte, text),
        ]
    )
