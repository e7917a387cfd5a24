"""The correctness criterion: every element, against float64, with constants derived from the arithmetic.

    |out - ref| <= 1.01*u*|ref| + tau(K)*s + eta,   s = max(rms of the row of ref, sqrt((W*W) @ (X*X)))

u is the unit roundoff of the output dtype, eta half its smallest subnormal; tau(K)*s bounds what fp32
accumulation in any order can lose. Further: the relative Frobenius error of rows and columns with at least 64
nonzero elements stays below T; finiteness agrees; rows without a nonzero are exactly epilogue(0); small integers are
exact. Everything is compared with `<=`, so NaN never passes. The constants come from emulation: fp32
accumulation in chunks of 16 or one by one passes, 16-bit accumulators, 16-bit split-K and skipped k fail.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.dtypes import DTYPES
from fitness.inputs import Case
from fitness.outcome import WrongValues
from fitness.task import Task
from fitness.triage import classify

Array = NDArray[Any]
Mask = NDArray[np.bool_]
_LEAST: Final = float(np.finfo(np.float64).tiny)

FROBENIUS_ELEMENTS: Final = 32
"""Rows and columns that fewer elements decide have no meaningful Frobenius error.

Counted is the participation ratio (sum of squares)^2 / (sum of fourth powers): n equal elements count n, n normal ones
n / 3, zeros nothing. With a single large element a correctly rounded line is off by up to u, 4.9e-4 in float16 and
3.9e-3 in bfloat16, which is above T. Its square is u^2 times a mean of values of at most 1, a third on average where
mantissas are all 1, with a variance of 4/45 over the ratio; (T / u)^2 is 0.59 or more, five deviations off from 32 on.
"""

_TABLE: Final[Mapping[str, tuple[Callable[[int], float], Callable[[int], float]]]] = {  # out dtype -> tau(K), T(K)
    "float32": (lambda k: max(2e-5, 3e-9 * k), lambda k: max(4e-6, 6e-10 * k)),
    "float16": (lambda k: max(5e-5, 2e-8 * k), lambda k: 4e-4),  # noqa: ARG005
    "bfloat16": (lambda k: max(5e-5, 2e-8 * k), lambda k: 3e-3),  # noqa: ARG005
}


@dataclass(frozen=True)
class Tolerance:
    """The constants of the criterion for one task and K.

    Attributes:
        unit_roundoff, eta: of the output dtype.
        tau: share of the scale s that accumulation may lose.
        frobenius: largest relative Frobenius error of a long row or column.
    """

    unit_roundoff: float
    tau: float
    frobenius: float
    eta: float

    @staticmethod
    def of(task: Task, k: int) -> Tolerance:
        """The task's own tolerance, or by dtype where it says "auto"."""
        out = DTYPES[task.out_dtype]
        if isinstance(task.tolerance, str):
            tau, frobenius = (column(k) for column in _TABLE[task.out_dtype])
        else:
            tau, frobenius = task.tolerance["tau"], task.tolerance["frobenius"]
        return Tolerance(out.unit_roundoff, tau, frobenius, out.eta)


def check(
    case: Case, outputs: Mapping[str, Array], written: Mapping[str, Mask], *, sampled: bool
) -> WrongValues | None:
    """Compare the outputs of a run with the reference.

    Args:
        case: what was computed.
        outputs: as an Execution gives them.
        written: which elements the run wrote.
        sampled: only some blocks ran: compare what they wrote (writing nothing is wrong). Else every element must
            have been written.

    Returns:
        None if right.
    """
    with np.errstate(invalid="ignore"):  # what was not written may hold signalling NaNs
        got = case.logical(outputs).astype(np.float64)
    was_written = case.logical_written(written)
    compared = was_written if sampled else np.ones(got.shape, np.bool_)
    comparison = _Comparison(case, got, compared)
    wrong = comparison.wrong_elements() | (compared & ~was_written)
    if sampled and got.size and not compared.any():
        wrong = compared = np.ones(got.shape, np.bool_)
    elif not wrong.any():
        wrong = comparison.wrong_lines()
    if not wrong.any():
        return None
    return comparison.describe(wrong, was_written)


def margins(case: Case, outputs: Mapping[str, Array]) -> tuple[float, float]:
    """How much of the criterion a complete result uses up: at most 1 in both for a right one.

    Returns:
        (largest error of an element / what is allowed there, largest Frobenius error of a long line / its limit);
        inf where exactness or finiteness is violated.
    """
    with np.errstate(invalid="ignore"):
        got = case.logical(outputs).astype(np.float64)
    comparison = _Comparison(case, got, np.ones(got.shape, np.bool_))
    element = comparison.margin(np.ones(got.shape, np.bool_))
    return element, comparison.line_margin()


class _Limits:
    """What of the criterion does not depend on the output: (M, N) arrays of one case.

    Attributes:
        finite: where the reference, rounded to the output dtype, is finite.
        ref: the reference, 0 elsewhere.
        allowed: largest |out - ref|; 0 where the result must be exact.
    """

    def __init__(self, case: Case, tolerance: Tolerance) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            self.finite: Mask = np.isfinite(case.reference.astype(case.out.numpy).astype(np.float32))
        self.ref = case.reference if self.finite.all() else np.where(self.finite, case.reference, 0.0)
        row_rms = np.sqrt(np.mean(np.square(self.ref), axis=1, keepdims=True)) if self.ref.size else self.ref
        scale = np.maximum(row_rms, case.scale)
        allowed = 1.01 * tolerance.unit_roundoff * np.abs(self.ref) + tolerance.tau * scale + tolerance.eta
        if case.exact:
            allowed[np.abs(self.ref) <= case.out.exact_integers] = 0.0
        if not case.task.epilogue:  # an epilogue of 0 is rounded like any result
            allowed[case.empty_rows] = 0.0
        self.allowed: NDArray[np.float64] = allowed


_kept: weakref.WeakKeyDictionary[object, _Limits] = weakref.WeakKeyDictionary()


def _limits(case: Case, tolerance: Tolerance) -> _Limits:
    """Made once for operands that workers meet again and again; by case where the format matters."""
    key: object = case.operands if case.operands.finite else case
    if key not in _kept:
        _kept[key] = _Limits(case, tolerance)
    return _kept[key]


class _Comparison:
    """One output against one reference; arrays are (M, N) float64."""

    def __init__(self, case: Case, got: NDArray[np.float64], compared: Mask) -> None:
        self.case, self.got, self.compared = case, got, compared
        self.tolerance = Tolerance.of(case.task, case.shape["K"])
        limits = _limits(case, self.tolerance)
        self.finite, self.ref, self.allowed = limits.finite, limits.ref, limits.allowed
        with np.errstate(invalid="ignore"):
            self.error = np.abs(got - self.ref)
        if not self.finite.all():
            self.error[~self.finite] = 0.0
        self.worst_line = 0.0

    def wrong_elements(self) -> Mask:
        """Elements outside their tolerance, or finite where the reference is not and the reverse."""
        finite_got = np.isfinite(self.got)
        right = np.where(self.finite, finite_got & (self.error <= self.allowed), ~finite_got)
        return self.compared & ~right

    def wrong_lines(self) -> Mask:
        """All compared elements of rows and columns whose Frobenius error is too large.

        A correctly rounded subnormal may be off by eta however small it is, so eta * sqrt(elements) is allowed on top.
        """
        wrong = np.zeros(self.got.shape, np.bool_)
        for long, norm, limit in self.lines():
            line = long & ~(norm <= limit)
            if line.any():
                self.worst_line = max(self.worst_line, _largest(norm, limit, line))
            wrong |= line & self.compared & self.finite
        return wrong

    def lines(self) -> Iterator[tuple[Mask, NDArray[np.float64], NDArray[np.float64]]]:
        """(has it a meaningful error, error, limit) of all rows, then of all columns."""
        use = self.compared & self.finite
        error, ref = np.where(use, self.error, 0.0), np.where(use, self.ref, 0.0)
        for axis in (1, 0):
            count = np.count_nonzero(ref, axis=axis, keepdims=True)
            shares = np.square(ref / np.maximum(np.abs(ref).max(axis=axis, keepdims=True, initial=0.0), _LEAST))
            deciding = np.square(shares.sum(axis=axis, keepdims=True)) >= FROBENIUS_ELEMENTS * np.square(shares).sum(
                axis=axis, keepdims=True
            )
            norm = np.sqrt(np.square(error).sum(axis=axis, keepdims=True))
            limit = self.tolerance.frobenius * np.sqrt(np.square(ref).sum(axis=axis, keepdims=True))
            limit += self.tolerance.eta * np.sqrt(count)
            yield deciding & (count > 0), norm, limit

    def line_margin(self) -> float:
        """Largest Frobenius error over its limit, of rows and columns that have a meaningful one."""
        return max((_largest(norm, limit, long) for long, norm, limit in self.lines() if long.any()), default=0.0)

    def describe(self, wrong: Mask, written: Mask) -> WrongValues:
        """How far off and in what pattern."""
        usable = wrong & self.finite & np.isfinite(self.got)
        relative = usable & (self.ref != 0)
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        at = (first[0], first[1])
        pattern, suggestion = classify(self.case, self.got, wrong, written=written)
        return WrongValues(
            max_abs=float(self.error[usable].max(initial=0.0)),
            max_rel=float((self.error[relative] / np.abs(self.ref[relative])).max(initial=0.0)),
            margin=self.margin(wrong),
            wrong=int(wrong.sum()),
            total=int(max(self.compared.sum(), wrong.sum())),
            first=at,
            got=float(self.got[at]),
            want=float(self.case.reference[at]),
            pattern=pattern,
            suggestion=suggestion,
        )

    def margin(self, wrong: Mask) -> float:
        """Largest error over what is allowed; inf where exactness or finiteness is violated."""
        if self.worst_line:
            return self.worst_line
        allowed = self.allowed
        same = np.isfinite(self.got) == self.finite
        beyond = np.where(same & (self.error == 0.0), 0.0, np.inf)
        ratio = np.divide(self.error, allowed, out=beyond, where=same & (allowed > 0))
        return float(ratio[wrong].max())


def _largest(norm: NDArray[np.float64], limit: NDArray[np.float64], line: Mask) -> float:
    """Largest ratio of those lines; inf where an error meets a limit of 0."""
    ratios = np.divide(norm, limit, out=np.where(norm > 0, np.inf, 0.0), where=limit > 0)
    return float(ratios[line].max())
