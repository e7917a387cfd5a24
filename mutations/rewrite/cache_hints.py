"""Read-only path and cache hints of global loads and stores.

CUDA C++ Programming Guide, "Load functions using cache hints" and "Store functions using cache hints".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code, Edit

if TYPE_CHECKING:
    import tree_sitter

_LOADS: Final = ("__ldg", "__ldcs", "__ldcg", "__ldlu")
_STORES: Final = ("__stcs", "__stcg", "__stwt")


class CacheHints(Rule):
    """Gives all loads of one operand, or all stores to one, a hint. What has one already is left alone."""

    name = "cache_hints"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each operand a kernel indexes directly, with each hint."""
        for function in code.kernels():
            for name, constant in _pointers(code, function).items():
                for hint in _LOADS if constant else _STORES:
                    edits = list(
                        _loads(code, function, name, hint) if constant else _stores(code, function, name, hint)
                    )
                    if edits:
                        what = "loads of" if constant else "stores to"
                        yield Rewritten(code.edited(edits), f"{what} {name} through {hint}")


def _pointers(code: Code, function: tree_sitter.Node) -> dict[str, bool]:
    """Pointer parameters of a kernel; True for pointers to const."""
    found: dict[str, bool] = {}
    for parameter in code.nodes("parameter_declaration", function):
        declarator = parameter.child_by_field_name("declarator")
        if declarator is not None and declarator.type == "pointer_declarator":
            (name,) = code.identifiers(declarator)
            found[name] = any(code.text(node) == "const" for node in code.nodes("type_qualifier", parameter))
    return found


def _indexed(code: Code, node: tree_sitter.Node, name: str) -> bool:
    argument = node.child_by_field_name("argument")
    return node.type == "subscript_expression" and argument is not None and code.text(argument) == name


def _loads(code: Code, function: tree_sitter.Node, name: str, hint: str) -> Iterator[Edit]:
    """Every `name[...]` whose value is used, the outermost where they are nested."""
    end = 0
    for node in code.nodes("subscript_expression", function):
        address = node.parent is not None and node.parent.type == "pointer_expression"
        if _indexed(code, node, name) and not address and node.start_byte >= end:
            end = node.end_byte
            yield Edit(node.start_byte, node.end_byte, f"{hint}(&{code.text(node)})")


def _stores(code: Code, function: tree_sitter.Node, name: str, hint: str) -> Iterator[Edit]:
    """Every statement `name[...] = value;`."""
    for statement in code.nodes("expression_statement", function):
        inner = statement.named_children[0] if statement.named_children else statement
        if inner.type != "assignment_expression" or inner.children[1].type != "=":
            continue
        left, right = inner.child_by_field_name("left"), inner.child_by_field_name("right")
        if left is not None and right is not None and _indexed(code, left, name):
            text = f"{hint}(&{code.text(left)}, {code.text(right)});"
            yield Edit(statement.start_byte, statement.end_byte, text)
