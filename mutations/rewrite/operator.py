"""The operator `rewrite`: one of the rules, drawn anew for every child."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fitness.registry import find
from mutations.operator import Context, Judged, Proposal, Refusal
from mutations.rewrite import RULES
from mutations.rewrite.rule import Rule


class Rewrite:
    """Tries the rules in a drawn order until one makes a child."""

    name = "rewrite"
    arity = 1

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """The child of the first rule that has one; a refusal if none has."""
        names = sorted(RULES)
        for i in context.rng.permutation(len(names)):
            rule = cast(type[Rule], find(RULES, names[int(i)], "rule"))()
            reply = rule.propose(parents, context)
            if isinstance(reply, Proposal):
                return reply
        return Refusal("no rewrite rule finds a place in this kernel that it could change in a new way")
