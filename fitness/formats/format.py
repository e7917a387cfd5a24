"""The `Format` protocol: how W lies in memory.

A format is stateless; its options are passed along. Packing is the harness's work, outside timing.
Every implementation passes `fitness.formats.testing.FormatContract`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fitness.expressions import Expression

Array = NDArray[Any]
Options = Mapping[str, str]
Shape = tuple[int, int]

MAX_COUNT: Final = 2**31 - 1
"""Formats count what they store in int32."""


class FormatError(ValueError):
    """An operand the format cannot store; the message names the row and the group or column."""


class Format(Protocol):
    """How the operand W (M x K) is stored.

    Attributes:
        name: as headers write it ("nm24").
        options: option name -> its choices, the default first; a param in a header picks one (see `numbered`).
        sizes: names of the integers that say how large the arrays have become, without the "W." ("nblocks").
    """

    name: str
    options: Mapping[str, tuple[str, ...]]
    sizes: tuple[str, ...]

    def argument_names(self, options: Options) -> tuple[str, ...]:
        """Names of the packed arrays as kernels receive them, without the "W." ("values", "meta")."""

    def pack(self, w: Array, options: Options) -> dict[str, Array]:
        """Packed arrays by argument name; each C-contiguous.

        Args:
            w: (M, K), any strides.
            options: a value for each option (`complete` fills defaults in).

        Raises:
            FormatError: `w` does not have the structure (as `validate`).
        """

    def unpack(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> Array:
        """The (M, K) operand; exact, except that -0.0 may come back as 0.0."""

    def validate(self, w: Array, options: Options) -> None:
        """Check that `w` (M, K) can be stored with these options.

        Raises:
            FormatError: it cannot; names the first offending row and group.
        """

    def bytes(self, w: Array, options: Options) -> int:
        """Bytes of all packed arrays of `w` (M, K), without packing it."""

    def stored_mask(self, w: Array, options: Options) -> NDArray[np.bool_]:
        """(M, K) True where a slot is stored, so that NaN and Inf of X reach the result there."""

    def domain(self, options: Options) -> tuple[Expression, ...]:
        """Conditions on the shape beyond which the format cannot store; most pad and have none."""

    def supports(self, dtype: np.dtype[Any]) -> str:
        """Empty if it stores that dtype, else the reason why not."""

    def ratio(self, options: Options) -> tuple[int, int] | None:
        """(n, m) if it stores at most n nonzeros of every m neighbours along K, which a pattern must then promise."""

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:
        """The value of every name in `sizes` for packed arrays; kernels and header expressions may use them."""


class BaseFormat:
    """What most formats have in common: any shape, any dtype, no sizes of their own."""

    sizes: tuple[str, ...] = ()

    def domain(self, options: Options) -> tuple[Expression, ...]:  # noqa: ARG002
        """Any shape: they pad."""
        return ()

    def supports(self, dtype: np.dtype[Any]) -> str:  # noqa: ARG002
        """Any dtype."""
        return ""

    def ratio(self, options: Options) -> tuple[int, int] | None:  # noqa: ARG002
        """No structure is asked for."""
        return None

    def measure(self, arrays: Mapping[str, Array], shape: Shape, options: Options) -> dict[str, int]:  # noqa: ARG002
        """Nothing."""
        return {}


def numbered(choices: Sequence[str], number: int) -> str | None:
    """The choice a number picks: where all choices are numbers the equal one, else by index; None if there is none."""
    if all(choice.isdigit() for choice in choices):
        return str(number) if str(number) in choices else None
    return choices[number] if 0 <= number < len(choices) else None


def complete(storage: Format, options: Mapping[str, str]) -> dict[str, str]:
    """`options` with the default of every option that is not given.

    Raises:
        FormatError: an unknown option or choice.
    """
    chosen = {name: choices[0] for name, choices in storage.options.items()}
    for name, choice in options.items():
        if name not in chosen:
            raise FormatError(f"format {storage.name!r} has no option {name!r}; it has {sorted(chosen) or 'none'}")
        if choice not in storage.options[name]:
            raise FormatError(f"option {name} = {choice!r} of {storage.name!r}; choices: {list(storage.options[name])}")
        chosen[name] = choice
    return chosen


def check_matrix(w: Array, name: str, stored: int) -> None:
    """Raise FormatError unless `w` is a matrix of which the format stores fewer than 2^31 items."""
    if w.ndim != 2:
        raise FormatError(f"{name} stores a matrix, not an array of {w.ndim} dimensions")
    check_count(name, stored)


def check_count(name: str, stored: int) -> None:
    """Raise FormatError unless the format stores fewer than 2^31 items."""
    if stored > MAX_COUNT:
        raise FormatError(f"{name} counts what it stores in int32, at most {MAX_COUNT}; this operand has {stored}")
