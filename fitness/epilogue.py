"""What follows the product before it is stored: a chain of bias, scale, one activation and residual, in float64.

Operands, all optional in a kernel's argument list: `bias` (M,), one for each output feature, in the dtype of W and
X; `residual`, of the shape, layout and dtype of Y; `scale`, a float32 number. In a task whose chain lacks one of
them the buffer holds a single NaN and the number is NaN, so that kernels for any chain can list all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

ARGUMENTS: Final = ("bias", "residual", "scale")
"""Names kernels may take."""


def _gelu(v: Floats) -> Floats:
    from scipy.special import erf  # a tenth of a second, which most commands need not spend

    result: Floats = 0.5 * v * (1.0 + erf(v / np.sqrt(2.0)))
    return result


def _gelu_tanh(v: Floats) -> Floats:
    result: Floats = 0.5 * v * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (v + 0.044715 * v**3)))
    return result


def _silu(v: Floats) -> Floats:
    return v / (1.0 + np.exp(-v))


def _relu(v: Floats) -> Floats:
    return np.where(v < 0, 0.0, v)  # NaN stays NaN, as in PyTorch


ACTIVATIONS: Final[Mapping[str, tuple[Callable[[Floats], Floats], float]]] = {
    "relu": (_relu, 1.0),
    "gelu": (_gelu, 1.13),
    "gelu_tanh": (_gelu_tanh, 1.13),
    "silu": (_silu, 1.1),
}
"""Name -> function and Lipschitz constant. `gelu` is x * Phi(x), `gelu_tanh` its approximation (arXiv 1606.08415)."""

STEPS: Final = ("bias", "scale", "residual", *ACTIVATIONS)
"""What a task's `epilogue` may list."""


@dataclass(frozen=True, eq=False)
class Operands:
    """What a chain needs at one shape: bias (M,), residual (M, N) and the factor of `scale`; None where unused."""

    bias: Array | None = None
    residual: Array | None = None
    factor: float | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return sum(array.nbytes for array in (self.bias, self.residual) if array is not None)


def problem(steps: Iterable[str]) -> str:
    """Why a chain makes no sense, with the names of `STEPS` known to be right; empty if it does."""
    chain = tuple(steps)
    repeated = [step for step in chain if chain.count(step) > 1]
    if repeated:
        return f"{repeated[0]!r} occurs twice"
    active = [step for step in chain if step in ACTIVATIONS]
    return f"{active[0]!r} and {active[1]!r} are two activations" if len(active) > 1 else ""


@dataclass(frozen=True)
class Epilogue:
    """A chain of `STEPS`, applied in order; empty: the product itself."""

    steps: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def code(self) -> str:
        """The chain as `task.cuh` applies it: ".bias().relu()"."""
        return "".join(f".{step}()" for step in self.steps)

    @property
    def exact(self) -> bool:
        """True if small integers stay small integers."""
        return not any(step in ACTIVATIONS and step != "relu" for step in self.steps)

    def apply(self, product: Floats, operands: Operands) -> Floats:
        """The result of the chain, (M, N) float64.

        Args:
            product: (M, N).
            operands: as many as the chain needs.
        """
        value = product
        with np.errstate(over="ignore", invalid="ignore"):
            for step in self.steps:
                if step == "bias":
                    value = value + _wide(operands.bias)[:, None]
                elif step == "residual":
                    value = value + _wide(operands.residual)
                elif step == "scale":
                    value = value * float(operands.factor or 0.0)
                else:
                    value = ACTIVATIONS[step][0](value)
        return value

    def error_scale(self, scale: Floats, operands: Operands) -> Floats:
        """The size of an honest float32 error behind the chain, (M, N).

        Args:
            scale: the same for the product.
            operands: what is added enlarges the numbers that are rounded; factor and activation stretch them.
        """
        value = scale
        for step in self.steps:
            if step == "bias":
                value = np.hypot(value, _wide(operands.bias)[:, None])
            elif step == "residual":
                value = np.hypot(value, _wide(operands.residual))
            elif step == "scale":
                value = value * abs(float(operands.factor or 0.0))
            else:
                value = value * ACTIVATIONS[step][1]
        return value

    def bytes(self, m: int, n: int, itemsize: int, out_itemsize: int) -> int:
        """Bytes that must be read for it."""
        return ("bias" in self.steps) * m * itemsize + ("residual" in self.steps) * m * n * out_itemsize


def _wide(array: Array | None) -> Floats:
    assert array is not None, "the chain needs an operand it was not given"
    return array.astype(np.float64)
