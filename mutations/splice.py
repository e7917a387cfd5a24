"""The `splice` operator: crossover of params and of named regions between two parents."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from numpy.random import Generator

from fitness.kernel import Kernel, KernelError, Param, parse_kernel
from fitness.outcome import Timed
from mutations.launches import launchable, live_params
from mutations.operator import Context, Judged, Proposal, Refusal
from mutations.regions import Region, regions, replace_region

_DRAWS: Final = 64
_WORD: Final = re.compile(r"\b[A-Za-z_]\w*\b")
_INCLUDE: Final = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"][^>"\n]+[>"][^\n]*\n', re.MULTILINE)

T = TypeVar("T")


@dataclass(frozen=True)
class _Difference:
    """What the second parent could give the first: params with their values, and regions."""

    params: Mapping[str, int]
    regions: Mapping[str, Region]


class Splice:
    """Takes its first parent and, of what the second one has differently, what serves the second one well.

    Params cross over where both parents know them and the first one's list has the value. Kernels often serve
    one shape with some params and the next shape with others, so the first child of two parents has every param
    from the parent that is faster where the param matters: the best of both where shapes share no param. The next
    ones take a random half. Regions cross over where name and interface are equal; the params, constraints and
    includes a region needs come along.
    """

    name = "splice"
    arity = 2

    def propose(self, parents: Sequence[Judged], context: Context) -> Proposal | Refusal:
        """One child of two parents, or a refusal if they differ in nothing that can be exchanged."""
        first, second = (parent.candidate.kernel for parent in parents)
        difference = _difference(first, second)
        if not difference.params and not difference.regions:
            return Refusal("the parents share no region or param in which they differ")
        best_of_both = _strengths(parents, difference.params, context)
        for params, taken in itertools.chain([(best_of_both, {})], _halves(difference, context.rng)):
            child = _child(first, second, params, taken)
            if child is None or child in (first, second) or context.ledger.tried(child.id):
                continue
            if launchable(child, context.task, context.target) and not _unfit(child, context):
                return Proposal(child, _reason(parents, child, params, taken))
        return Refusal("no exchange between the parents gives a feasible kernel that is new to the run")


def _unfit(child: Kernel, context: Context) -> bool:
    return any(finding.severity == "error" for finding in context.task.domain_violations(child))


def _difference(first: Kernel, second: Kernel) -> _Difference:
    params = {
        name: value
        for name, value in second.params.items()
        if name in first.params and value != first.params[name] and value in first.header.params[name].values
    }
    if first.source == second.source or _rules(first) != _rules(second):
        return _Difference(params, {})
    ours = regions(first.source)
    theirs = {
        name: region
        for name, region in regions(second.source).items()
        if name in ours and region.interface == ours[name].interface and region.text != ours[name].text
    }
    return _Difference(params, theirs)


def _rules(kernel: Kernel) -> tuple[object, ...]:
    """Header settings that hold for the whole file: code is exchanged only between files that agree on them."""
    return kernel.header.atomics, kernel.header.options, kernel.header.align


def _strengths(parents: Sequence[Judged], values: Mapping[str, int], context: Context) -> dict[str, int]:
    """Of the second parent's values, those of params that matter, by time, at shapes where it is the faster one."""
    first, second = (parent.outcome for parent in parents)
    if not isinstance(first, Timed) or not isinstance(second, Timed):
        return {}
    lead = dict.fromkeys(values, 0.0)  # log of first time / second time, summed over the shapes a param matters at
    for ours, theirs in zip(first.timings, second.timings, strict=False):
        live = live_params(parents[0].candidate.kernel, context.task, context.target, (ours.shape,))
        for name in lead.keys() & set(live):
            lead[name] += math.log(ours.time_us / theirs.time_us)
    return {name: value for name, value in values.items() if lead[name] > 0}


def _halves(difference: _Difference, rng: Generator) -> Iterator[tuple[dict[str, int], dict[str, Region]]]:
    """Random halves of what differs, a bounded number of them."""
    for _ in range(_DRAWS):
        yield _half(difference.params, rng), _half(difference.regions, rng)


def _half(items: Mapping[str, T], rng: Generator) -> dict[str, T]:
    """Each item with probability one half; always as many draws, whatever they give."""
    return {name: item for (name, item), coin in zip(items.items(), rng.random(len(items)), strict=True) if coin < 0.5}


def _child(first: Kernel, second: Kernel, params: Mapping[str, int], taken: Mapping[str, Region]) -> Kernel | None:
    """The first parent with these params and regions of the second; None if they do not fit together."""
    if not taken:
        return first.with_params(params) if first.feasible({**first.params, **params}) else None
    source = first.source
    for name, region in taken.items():
        source = replace_region(source, name, region.text)
    needed = _needed(first, second, taken)
    try:
        source = _merge_header(source, first, second, needed)
        source = _merge_includes(source, second.source)
        source = _drop_unused(source, first)
        known = parse_kernel(source).header.params
        values = {**{name: second.params[name] for name in needed}, **first.params, **params}
        return parse_kernel(source, params={name: value for name, value in values.items() if name in known})
    except KernelError:  # a broken constraint, say: these parts do not fit together
        return None


def _needed(first: Kernel, second: Kernel, taken: Mapping[str, Region]) -> dict[str, Param]:
    """Params of the second parent that the taken regions mention and the first one lacks."""
    words = {word for region in taken.values() for word in _WORD.findall(region.text)}
    return {
        name: param for name, param in second.header.params.items() if name in words and name not in first.header.params
    }


def _merge_header(source: str, first: Kernel, second: Kernel, needed: Mapping[str, Param]) -> str:
    """Adds the needed params, and the second parent's constraints on them, to the header's text."""
    if not needed:
        return source
    lines = "".join(
        f"{name} = {{ values = {list(param.values)}, default = {param.default} }}\n" for name, param in needed.items()
    )
    if re.search(r"^\[params\][ \t]*$", source, re.MULTILINE):
        source = re.sub(r"^\[params\][^\n]*\n", lambda match: match[0] + lines, source, count=1, flags=re.MULTILINE)
    else:
        source = source.replace("---*/", f"[params]\n{lines}---*/", 1)
    known = first.header.params.keys() | needed.keys()
    added = [
        constraint.text
        for constraint in second.header.constraints
        if constraint.names <= known and not constraint.names.isdisjoint(needed)
    ]
    if not added:
        return source
    quoted = "".join(f"    '{text}',\n" for text in added)
    if re.search(r"^constraints[ \t]*=[ \t]*\[", source, re.MULTILINE):
        pattern = r"^constraints[ \t]*=[ \t]*\["
        return re.sub(pattern, lambda match: f"{match[0]}\n{quoted}", source, count=1, flags=re.MULTILINE)
    return re.sub(r"(/\*---[^\n]*\n)", lambda match: f"{match[0]}constraints = [\n{quoted}]\n", source, count=1)


def _merge_includes(source: str, other: str) -> str:
    """Adds the other source's includes that this one lacks, in front of its code."""
    ours = {line.strip() for line in _INCLUDE.findall(source)}
    missing = "".join(line for line in _INCLUDE.findall(other) if line.strip() not in ours)
    return source.replace("---*/\n", f"---*/\n{missing}", 1) if missing else source


def _drop_unused(source: str, first: Kernel) -> str:
    """Removes the params of the first parent that nothing mentions any more: they would be dead genes."""
    for name in first.header.params:
        line = re.search(rf"^[ \t]*{name}[ \t]*=[ \t]*\{{[^\n]*\n", source, re.MULTILINE)
        if line is not None and len(re.findall(rf"\b{name}\b", source)) == 1:
            source = source[: line.start()] + source[line.end() :]
    return source


def _reason(parents: Sequence[Judged], child: Kernel, params: Mapping[str, int], taken: Mapping[str, Region]) -> str:
    """Who gave what, in plain words."""
    first, second = (parent.candidate.plan.n for parent in parents)
    values = ", ".join(f"{name} = {value}" for name, value in params.items() if name in child.params)
    parts = []
    if values:
        parts.append(f"param{'s' if len(params) > 1 else ''} {values}")
    if taken:
        parts.append(f"region{'s' if len(taken) > 1 else ''} {', '.join(taken)}")
    return f"candidate {first} with {' and '.join(parts)} of candidate {second}"
