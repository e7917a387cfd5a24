"""What of a kernel differs between the threads of a block, and its statements in front of a loop.

Rules that move data through shared memory need both: which threads read the same, and how one thread works out the
addresses of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel, Launch
from mutations.rewrite.syntax import Code, Edit, statements

if TYPE_CHECKING:
    import tree_sitter

Dims = frozenset[str]
"""Of "x", "y", "z": the components of threadIdx that a value depends on."""
EVERY: Final[Dims] = frozenset("xyz")
_OWN_CALLS: Final = re.compile(r"__(shfl|ballot|match|reduce|any|all|activemask|syncthreads_)|atomic|clock")
_DECLARATORS: Final = ("init_declarator", "identifier", "pointer_declarator", "array_declarator")


class Threads:
    """Dependence of the values of one function on the thread; what cannot be told counts as dependent."""

    def __init__(self, code: Code, function: tree_sitter.Node) -> None:
        self.code, self.function = code, function
        self._names: dict[str, Dims] = {}
        own = (node for node in code.nodes("function_definition") if node != function)
        self._odd = {_function_name(code, node) for node in own if _depends_by_itself(code.text(node))}
        sources = list(self._sources())
        for _ in range(len(sources) + 1):  # to the fixed point; each round settles one name at least
            before = dict(self._names)
            for name, value in sources:
                self._names[name] = self._names.get(name, frozenset()) | (EVERY if value is None else self.of(value))
            if self._names == before:
                break

    def of(self, node: tree_sitter.Node) -> Dims:
        """The components of threadIdx that the value of an expression depends on."""
        text = self.code.text(node)
        if node.type == "field_expression" and text.startswith("threadIdx."):
            return frozenset(text.removeprefix("threadIdx."))
        if node.type == "identifier":
            return self._names.get(text, frozenset())
        if node.type in ("gnu_asm_expression", "lambda_expression"):
            return EVERY
        if node.type == "call_expression":
            callee = node.child_by_field_name("function")
            name = "" if callee is None else self.code.text(callee)
            if _OWN_CALLS.match(name) or name.partition("<")[0] in self._odd:
                return EVERY
        return frozenset().union(*(self.of(child) for child in node.named_children))

    def of_text(self, text: str) -> Dims:
        """The same for an expression given as text, by the names in it."""
        found = frozenset(re.findall(r"\bthreadIdx\.([xyz])", text))
        return found.union(*(self._names.get(name, frozenset()) for name in re.findall(r"\b[A-Za-z_]\w*", text)))

    def _sources(self) -> Iterator[tuple[str, tree_sitter.Node | None]]:
        """Every name with each expression that it gets a value from; None for a value that cannot be told."""
        for node in self.code.nodes("declaration", self.function):
            shared = "__shared__" in self.code.text(node)
            for declarator in (child for child in node.named_children if child.type in _DECLARATORS):
                value = declarator.child_by_field_name("value") if declarator.type == "init_declarator" else None
                for name in _declared(self.code, declarator):
                    yield name, None if shared or "[" in self.code.text(declarator).split("=")[0] else value
        for kind, left, right in (
            ("assignment_expression", "left", "right"),
            ("update_expression", "argument", "argument"),
        ):
            for node in self.code.nodes(kind, self.function):
                target, value = node.child_by_field_name(left), node.child_by_field_name(right)
                name = _assigned_name(self.code, target)
                if name:
                    yield name, value
                    yield from ((name, condition) for condition in _conditions(node, self.function))


def _assigned_name(code: Code, target: tree_sitter.Node | None) -> str:
    """The variable, or the array or pointer through which memory is written."""
    while target is not None and target.type != "identifier":
        target = target.child_by_field_name("argument") or next(iter(target.named_children), None)
    return "" if target is None else code.text(target)


def _conditions(node: tree_sitter.Node, within: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """What decides whether a node runs."""
    while node.parent is not None and node != within:
        node = node.parent
        if node.type in ("if_statement", "for_statement", "while_statement", "do_statement"):
            condition = node.child_by_field_name("condition")
            if condition is not None:
                yield condition


def _depends_by_itself(text: str) -> bool:
    return "threadIdx" in text or "asm" in text or _OWN_CALLS.search(text) is not None


def _function_name(code: Code, function: tree_sitter.Node) -> str:
    declarator = function.child_by_field_name("declarator")
    names = [] if declarator is None else [code.text(node) for node in code.nodes("identifier", declarator)]
    return names[0] if names else ""


def _declared(code: Code, declarator: tree_sitter.Node) -> tuple[str, ...]:
    """The name a declarator gives, without what stands in its initialiser or extents."""
    node: tree_sitter.Node | None = declarator
    while node is not None and node.type != "identifier":
        node = node.child_by_field_name("declarator")
    return () if node is None else (code.text(node),)


@dataclass(frozen=True)
class Prelude:
    """The statements of a kernel in front of one of its top-level statements: declarations and early returns."""

    code: Code
    threads: Threads
    declarations: tuple[tree_sitter.Node, ...]
    exits: tuple[tree_sitter.Node, ...]

    @cached_property
    def conditions(self) -> tuple[tree_sitter.Node, ...]:
        """The operands of `||` in the conditions of the early returns: a thread for which one holds does nothing."""
        found: list[tree_sitter.Node] = []
        for node in self.exits:
            condition = node.child_by_field_name("condition")
            assert condition is not None, "an if has one"
            found += _operands(self.code, condition)
        return tuple(found)

    def names(self, declaration: tree_sitter.Node) -> tuple[str, ...]:
        """What a declaration declares."""
        kinds = (child for child in declaration.named_children if child.type in _DECLARATORS)
        return tuple(name for child in kinds for name in _declared(self.code, child))

    def needed(self, names: Iterable[str], dims: Dims) -> tuple[tree_sitter.Node, ...]:
        """Declarations that `names` rest on and that depend on one of `dims`, in order."""
        wanted, kept = set(names), []
        for declaration in reversed(self.declarations):
            if wanted & set(self.names(declaration)):
                wanted |= self.code.identifiers(declaration)
                if any(self.threads.of(child) & dims for child in declaration.named_children):
                    kept.append(declaration)
        return tuple(reversed(kept))

    def reads_memory(self, dims: Dims) -> bool:
        """True if a declaration reads memory at a place that depends on one of `dims`."""
        for declaration in self.declarations:
            for kind in ("subscript_expression", "call_expression", "pointer_expression"):
                for node in self.code.nodes(kind, declaration):
                    loads = kind != "call_expression" or "__ld" in self.code.text(node)
                    if loads and self.threads.of(node) & dims:
                        return True
        return False


def prelude(code: Code, function: tree_sitter.Node, before: tree_sitter.Node) -> Prelude | None:
    """The prelude of a kernel's top-level statement, None if other statements stand in front of it."""
    body = function.child_by_field_name("body")
    declarations: list[tree_sitter.Node] = []
    exits: list[tree_sitter.Node] = []
    for node in statements(body) if body is not None else []:
        if node == before:
            return Prelude(code, Threads(code, function), tuple(declarations), tuple(exits))
        if node.type == "declaration":
            declarations.append(node)
        elif node.type == "if_statement" and _returns(code, node):
            exits.append(node)
        elif node.type != "using_declaration":
            return None
    return None


def _returns(code: Code, node: tree_sitter.Node) -> bool:
    """`if (...) return;` without else."""
    consequence = node.child_by_field_name("consequence")
    return (
        consequence is not None
        and node.child_by_field_name("alternative") is None
        and code.text(consequence).strip("{} \n") == "return;"
    )


def _operands(code: Code, node: tree_sitter.Node) -> list[tree_sitter.Node]:
    if node.type in ("condition_clause", "parenthesized_expression") and len(node.named_children) == 1:
        return _operands(code, node.named_children[0])
    if node.type == "binary_expression" and node.children[1].type == "||":
        return [*_operands(code, node.children[0]), *_operands(code, node.children[2])]
    return [node]


def with_threads(code: Code, node: tree_sitter.Node, threads: Mapping[str, str]) -> str:
    """The text of a node as another thread runs it: `threads` gives its threadIdx by component."""
    edits = [
        Edit(found.start_byte, found.end_byte, threads[component])
        for found in code.nodes("field_expression", node)
        if code.text(found).startswith("threadIdx.")
        and (component := code.text(found).removeprefix("threadIdx.")) in threads
    ]
    return code.edited(edits, node.start_byte, node.end_byte)


def in_code(expression: str) -> str:
    """A header's integer expression in C++; params are macros there."""
    return f"({expression.replace('//', '/').replace('cdiv(', 'evo::cdiv(')})"


def only_launch(kernel: Kernel, code: Code, function: tree_sitter.Node) -> Launch | None:
    """The launch of a function if it is the only one and its block is made of params alone."""
    name = _function_name(code, function)
    found = [launch for launch in kernel.header.launches if launch.kernel == name]
    if len(found) != 1:
        return None
    known = kernel.header.params.keys()
    fixed = all(extent.names <= known and "min(" not in extent.text for extent in found[0].block)
    return found[0] if fixed and not any("round_up" in extent.text for extent in found[0].block) else None


def element_type(code: Code, function: tree_sitter.Node, pointer: str) -> str | None:
    """The type of what a `const T* pointer`, parameter or single declaration, points to."""
    types = set()
    for kind in ("parameter_declaration", "declaration"):
        for node in code.nodes(kind, function):
            for declarator in node.children_by_field_name("declarator"):
                if pointer not in _declared(code, declarator):
                    continue
                kept = node.child_by_field_name("type")
                stars = code.text(declarator).split("=")[0].count("*")
                types.add(code.text(kept) if kept is not None and stars == 1 else "auto")
    return types.pop() if len(types) == 1 and "auto" not in types else None


def pragma_start(code: Code, node: tree_sitter.Node) -> int:
    """Where a statement starts, the pragma on the line above counted in."""
    line = code.line_start(node.start_byte)
    if line == 0 or not code.starts_line(node):
        return node.start_byte
    above = code.line_start(line - 1)
    return above if re.match(r"[ \t]*#[ \t]*pragma\b", code.between(above, line)) else node.start_byte
