"""Operators of the search: parents -> child. `OPERATORS` names the built-in ones; dotted paths name a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mutations.operator import Operator

OPERATORS: Mapping[str, str] = {
    "dispatch": "mutations.dispatch:Dispatch",
    "llm_crossover": "mutations.llm.operators:LlmCrossover",
    "llm_edit": "mutations.llm.operators:LlmEdit",
    "llm_optimise": "mutations.llm.operators:LlmOptimise",
    "llm_repair": "mutations.llm.operators:LlmRepair",
    "llm_rewrite": "mutations.llm.operators:LlmRewrite",
    "llm_translate": "mutations.llm.operators:LlmTranslate",
    "rewrite": "mutations.rewrite.operator:Rewrite",
    "splice": "mutations.splice:Splice",
    "surrogate": "mutations.surrogate:Surrogate",
    "tune": "mutations.tune:Tune",
}
"""Name in an experiment's `[operators]` -> "module:Class"; adding an operator is one line here."""


def load_operator(name: str) -> Operator:
    """The operator an experiment calls `name`: a key of `OPERATORS` or "package.module:Class".

    Raises:
        fitness.registry.UnknownNameError: no such name (with the nearest spelling), or it cannot be imported.
    """
    from fitness.registry import find  # here, so that `import mutations` (and `evo --help`) stays light

    operator_class: Any = find(OPERATORS, name, "operator")
    operator: Operator = operator_class()
    return operator
