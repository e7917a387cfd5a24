"""CUDA C++ as a syntax tree, and edits of its text.

tree-sitter-cuda stumbles over `__align__(n)` in declarations and over pragmas in front of a nested loop; both are
blanked before parsing (same length, so that positions hold) and looked at in the text where a rule needs them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tree_sitter

_BLANKED: Final = re.compile(rb"__align__[ \t]*\([^()\n]*\)|^[ \t]*#[ \t]*pragma[^\n]*", re.MULTILINE)
_LEAVES: Final = ("break_statement", "continue_statement", "return_statement", "goto_statement")


@functools.cache
def _parser() -> tree_sitter.Parser:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


class Code:
    """The tree of one source. Positions are bytes of its UTF-8 text."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        blanked = _BLANKED.sub(lambda match: b" " * len(match[0]), self.data)
        self._tree = _parser().parse(blanked)
        self.root = self._tree.root_node
        self._nodes: list[tree_sitter.Node] = []  # in the order of the source, outer ones before inner ones
        self._ends: dict[int, int] = {}  # id of a node -> where in that list its descendants end
        self._places: dict[int, int] = {}
        self._walk()
        self._types = [node.type for node in self._nodes]

    def text(self, node: tree_sitter.Node) -> str:
        """The source of a node."""
        return self.between(node.start_byte, node.end_byte)

    def between(self, start: int, end: int) -> str:
        """The source from one position to another."""
        return self.data[start:end].decode()

    def nodes(self, kind: str, within: tree_sitter.Node | None = None) -> Iterator[tree_sitter.Node]:
        """Nodes of a type in the order of the source, outer ones before inner ones."""
        node = within or self.root
        for i in range(self._places[node.id], self._ends[node.id]):
            if self._types[i] == kind:
                yield self._nodes[i]

    def _walk(self) -> None:
        pending: list[tuple[tree_sitter.Node, bool]] = [(self.root, False)]
        while pending:
            node, left = pending.pop()
            if left:
                self._ends[node.id] = len(self._nodes)
                continue
            self._places[node.id] = len(self._nodes)
            self._nodes.append(node)
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(node.children))

    def kernels(self) -> tuple[tree_sitter.Node, ...]:
        """Definitions of `__global__` functions."""
        return tuple(
            node
            for node in self.nodes("function_definition")
            if any(child.type == "__global__" for child in node.children)
        )

    def identifiers(self, within: tree_sitter.Node) -> set[str]:
        """Names used or declared in a node."""
        return {self.text(node) for node in self.nodes("identifier", within)}

    def replaced(self, node: tree_sitter.Node, names: Mapping[str, str]) -> str:
        """The text of a node with identifiers replaced by other text."""
        edits = [
            Edit(found.start_byte, found.end_byte, names[self.text(found)])
            for found in self.nodes("identifier", node)
            if self.text(found) in names
        ]
        return self.edited(edits, node.start_byte, node.end_byte)

    def edited(self, edits: Iterable[Edit], start: int = 0, end: int | None = None) -> str:
        """The text from `start` to `end` (all of it by default) with edits applied, which must not overlap."""
        pieces, at = [], start
        for edit in sorted(edits, key=lambda item: (item.start, item.end)):
            assert edit.start >= at, "edits overlap"
            pieces += [self.data[at : edit.start], edit.text.encode()]
            at = edit.end
        return b"".join((*pieces, self.data[at:end])).decode()

    def line_start(self, position: int) -> int:
        """First byte of the line of a position."""
        return self.data.rfind(b"\n", 0, position) + 1

    def starts_line(self, node: tree_sitter.Node) -> bool:
        """True if only blanks stand before the node on its line."""
        return not self.data[self.line_start(node.start_byte) : node.start_byte].strip()


@functools.lru_cache(maxsize=16)
def parsed(source: str) -> Code:
    """The tree of a source; rules that look at the same parent share it."""
    return Code(source)


@dataclass(frozen=True)
class Edit:
    """Bytes `start` to `end` become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Loop:
    """`for (TYPE name = begin; name < end; name += step) body`; texts but for the nodes."""

    node: tree_sitter.Node
    body: tree_sitter.Node
    type: str
    name: str
    begin: str
    end: str
    step: str

    @property
    def increment(self) -> str:
        """The third part of the loop."""
        return f"++{self.name}" if self.step == "1" else f"{self.name} += {self.step}"


def counted_loop(code: Code, node: tree_sitter.Node) -> Loop | None:
    """The loop of a `for_statement`, None if it is of another form."""
    declaration, condition, update, body = (
        node.child_by_field_name(field) for field in ("initializer", "condition", "update", "body")
    )
    if declaration is None or condition is None or update is None or body is None:
        return None
    declared = [child for child in declaration.named_children if child.type == "init_declarator"]
    if declaration.type != "declaration" or len(declared) != 1 or condition.type != "binary_expression":
        return None
    name, value = declared[0].child_by_field_name("declarator"), declared[0].child_by_field_name("value")
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    if name is None or value is None or left is None or right is None or condition.children[1].type != "<":
        return None
    variable = code.text(name)
    step = _step(code, update, variable)
    if code.text(left) != variable or step is None:
        return None
    kind = code.between(declaration.start_byte, name.start_byte).strip()
    return Loop(node, body, kind, variable, code.text(value), code.text(right), step)


def _step(code: Code, update: tree_sitter.Node, variable: str) -> str | None:
    text = code.text(update).replace(" ", "")
    if text in (f"++{variable}", f"{variable}++"):
        return "1"
    if update.type != "assignment_expression" or not text.startswith(f"{variable}+="):
        return None
    right = update.child_by_field_name("right")
    return None if right is None else code.text(right)


def loops(code: Code) -> tuple[Loop, ...]:
    """All counted loops of a source."""
    found = (counted_loop(code, node) for node in code.nodes("for_statement"))
    return tuple(loop for loop in found if loop is not None)


def loaded(code: Code, element: tree_sitter.Node) -> tree_sitter.Node | None:
    """What stands for the value of `p[i]`: itself, or the `__ldg(&p[i])` around it; None where its address is taken."""
    address = element.parent
    if address is None or address.type != "pointer_expression" or not code.text(address).startswith("&"):
        return element
    arguments = address.parent
    call = None if arguments is None else arguments.parent
    if arguments is None or call is None or arguments.type != "argument_list" or len(arguments.named_children) != 1:
        return None
    return call if code.text(call).startswith("__ld") else None


def registers(code: Code) -> set[str]:
    """Names of arrays of a thread's own, among them parameters `(&name)[n]`; not those that are shared elsewhere."""
    own: set[str] = set()
    shared: set[str] = set()
    for kind in ("declaration", "parameter_declaration"):
        for declared in code.nodes(kind):
            names = {
                code.text(next(code.nodes("identifier", array))) for array in code.nodes("array_declarator", declared)
            }
            (shared if "__shared__" in code.text(declared) else own).update(names)
    return own - shared


def statements(body: tree_sitter.Node) -> list[tree_sitter.Node]:
    """The statements of a block, or the one that is none."""
    inner = body.named_children if body.type == "compound_statement" else [body]
    return [node for node in inner if node.type != "comment"]


def leaves(code: Code, node: tree_sitter.Node) -> bool:
    """True if control may leave a node by a jump."""
    return any(next(code.nodes(kind, node), None) is not None for kind in _LEAVES)


def assigned(code: Code, node: tree_sitter.Node) -> set[str]:
    """Texts of everything a node assigns to or counts up, declarations of its own aside."""
    own = {
        code.text(name)
        for declared in code.nodes("init_declarator", node)
        if (name := declared.child_by_field_name("declarator")) is not None
    }
    targets = [found.child_by_field_name("left") for found in code.nodes("assignment_expression", node)]
    targets += [found.child_by_field_name("argument") for found in code.nodes("update_expression", node)]
    return {code.text(target) for target in targets if target is not None} - own
