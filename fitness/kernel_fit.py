"""Does a kernel's header fit a task? Format, names in expressions, arguments and `require` (part of gate 1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from fitness.expressions import Expression, ExpressionError, nearest
from fitness.kernel import Kernel
from fitness.outcome import Finding, Gate

DEVICE_NAMES: Final = frozenset({"SMS", "L2", "W.nnz", "W.max_row"})
"""Names expressions may use besides shape names, leading dimensions and params."""

_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?\Z")


def check_kernel(
    kernel: Kernel,
    *,
    shapes: Sequence[Mapping[str, int]],
    hidden: Sequence[Mapping[str, int]] = (),
    arguments: Iterable[str],
    sizes: Iterable[str] = (),
    unsupported: str,
    dtypes: tuple[str, str] = ("float16", "float16"),
    layouts: tuple[str, str] = ("col", "col"),
) -> tuple[Finding, ...]:
    """Every way the header does not fit.

    Args:
        kernel: the candidate.
        shapes: names and values of every shape at which `require` must hold.
        hidden: more of them, which no finding may show.
        arguments: argument names of the task in the kernel's format.
        sizes: those of them that are integers of the format, which expressions may use too ("W.nblocks").
        unsupported: why the task's W cannot be stored in that format; empty if it can.
        dtypes: of the task's operands and of its result.
        layouts: of X and Y.
    """
    if unsupported:
        return (_finding(kernel, "format", "unsupported_format", unsupported, "choose another format"),)
    if other := _not_meant(kernel, dtypes, layouts):
        return other
    return (
        *_unknown_names(kernel, frozenset(shapes[0]), frozenset(sizes)),
        *_unknown_arguments(kernel, tuple(arguments)),
        *_failing_requirements(kernel, shapes, hidden),
    )


def arch_violation(kernel: Kernel, arch: str) -> Finding | None:
    """The header lists the architectures the code is written for, and `arch` ("sm_80") is none of them."""
    archs = kernel.header.archs
    if not archs or arch in archs:
        return None
    message = f"the code is written for {', '.join(archs)}, not for {arch}"
    return _finding(kernel, "archs", "unsupported_arch", message, "choose another kernel or another card")


def _finding(
    kernel: Kernel, key: str, kind: str, message: str, suggestion: str, shape: Mapping[str, int] | None = None
) -> Finding:
    line = kernel.header.line(key)
    return Finding(Gate.PARSE, kind, f"{key}: {message}", line=line, suggestion=suggestion, shape=shape)


def _not_meant(kernel: Kernel, dtypes: tuple[str, str], layouts: tuple[str, str]) -> tuple[Finding, ...]:
    """The header lists what the code is written for, and the task asks for something else."""
    header = kernel.header
    asked = (
        ("dtypes", header.dtypes, dtypes[:1]),
        ("out_dtypes", header.out_dtypes, dtypes[1:]),
        ("layouts", header.layouts, tuple(dict.fromkeys(layouts))),
    )
    suggestion = "take types and layouts from task.cuh and drop the key, or choose another kernel"
    return tuple(
        _finding(
            kernel,
            key,
            "other_task",
            f"the code is written for {', '.join(listed)}, the task asks for {value}",
            suggestion,
        )
        for key, listed, wanted in asked
        for value in wanted
        if listed and value not in listed
    )


def _expressions(kernel: Kernel) -> Iterator[tuple[str, Expression]]:
    """Key and expression of everything evaluated per shape, `require` aside."""
    header = kernel.header
    for index, workspace in enumerate(header.workspaces):
        yield f"workspace[{index}].bytes", workspace.bytes
    for index, tensormap in enumerate(header.tensormaps):
        for key, expressions in tensormap.expressions().items():
            for expression in expressions:
                yield f"tensormap[{index}].{key}", expression
    for index, launch in enumerate(header.launches):
        for key, expressions in launch.expressions().items():
            for expression in expressions:
                yield f"launch[{index}].{key}", expression


def _unknown_names(kernel: Kernel, shape_names: frozenset[str], sizes: frozenset[str]) -> Iterator[Finding]:
    params = kernel.header.params.keys()
    known = shape_names | DEVICE_NAMES | sizes | params
    for key, expression in _expressions(kernel):
        for name in sorted(expression.names - known):
            yield _finding(kernel, key, "unknown_name", f"unknown name {name!r} in {expression}", nearest(name, known))
    for expression in kernel.header.require:
        for name in sorted(expression.names - (shape_names | params)):
            message = f"{name!r} in {expression} is no dimension and no param"
            yield _finding(kernel, "require", "unknown_name", message, nearest(name, shape_names | params))


def _unknown_arguments(kernel: Kernel, arguments: tuple[str, ...]) -> Iterator[Finding]:
    header = kernel.header
    workspaces = [workspace.name for workspace in header.workspaces]
    known = (*arguments, *workspaces, *(tensormap.name for tensormap in header.tensormaps))
    for index, launch in enumerate(header.launches):
        for name in launch.args:
            if name not in known and not _NUMBER.match(name):
                message = f"no argument {name!r} in this task and format"
                yield _finding(kernel, f"launch[{index}].args", "unknown_argument", message, nearest(name, known))
        for name in launch.memset:
            if name not in ("Y", *workspaces):
                message = f"{name!r} cannot be cleared"
                suggestion = nearest(name, ("Y", *workspaces))
                yield _finding(kernel, f"launch[{index}].memset", "unknown_argument", message, suggestion)
    for index, tensormap in enumerate(header.tensormaps):
        if tensormap.tensor not in (*arguments, *workspaces):
            message = f"no buffer {tensormap.tensor!r} in this task and format"
            suggestion = nearest(tensormap.tensor, (*arguments, *workspaces))
            yield _finding(kernel, f"tensormap[{index}].tensor", "unknown_argument", message, suggestion)
    for name in workspaces:
        if name in arguments:
            message = f"the name {name!r} is an argument of the task"
            yield _finding(kernel, "workspace[0]", "unknown_argument", message, "rename the workspace")


def _failing_requirements(
    kernel: Kernel, shapes: Sequence[Mapping[str, int]], hidden: Sequence[Mapping[str, int]]
) -> Iterator[Finding]:
    """One finding for each requirement, at the first shape where it fails."""
    suggestion = "handle every shape of the task's domain, tails included, instead of requiring it away"
    allowed = shapes[0].keys() | kernel.params.keys()
    for requirement in kernel.header.require:
        if not requirement.names <= allowed:
            continue  # reported as an unknown name
        shape = next((shape for shape in (*shapes, *hidden) if not _holds(requirement, kernel, shape)), None)
        if shape is None:
            continue
        if shape in shapes:
            where = "at " + ", ".join(f"{name} = {size}" for name, size in shape.items() if not name.startswith("ld"))
        else:
            where, shape = "on the task's whole domain", None
        message = f"{requirement} does not hold {where}"
        yield _finding(kernel, "require", "require_too_narrow", message, suggestion, shape)


def _holds(requirement: Expression, kernel: Kernel, shape: Mapping[str, int]) -> bool:
    try:
        return requirement.evaluate({**shape, **kernel.params}) != 0
    except ExpressionError:  # a division by zero or an overflow: it cannot be said to hold
        return False
