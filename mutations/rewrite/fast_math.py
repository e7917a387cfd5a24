"""Compile flags that trade the last bits for speed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fitness.dtypes import DTYPES
from fitness.kernel import Kernel
from mutations.operator import Context
from mutations.rewrite.rule import Rewritten, Rule
from mutations.rewrite.syntax import Code
from mutations.rewrite.toml import set_top, strings

_FLAGS: Final = ("--use_fast_math", "--ftz=true", "--prec-div=false")
_COARSE: Final = 2.0**-12
"""Results rounded more coarsely than this hide approximations of 2 ulp in float32."""


class FastMath(Rule):
    """Adds one flag, or drops it, where the result is of 16 bits: there the tolerance is wider than what is lost."""

    name = "fast_math"

    def rewrites(self, kernel: Kernel, code: Code, context: Context) -> Iterator[Rewritten]:  # noqa: ARG002
        """Each flag, on or off."""
        if DTYPES[context.task.out_dtype].unit_roundoff < _COARSE:
            return
        held = kernel.header.options
        for flag in _FLAGS:
            options = [option for option in held if option != flag] if flag in held else [*held, flag]
            verb = "without" if flag in held else "with"
            yield Rewritten(set_top(kernel.source, "options", strings(options)), f"compiled {verb} {flag}")
