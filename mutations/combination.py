"""Two kernels in one file: which of them runs is decided by a size of the task.

The code of each stands in a namespace of its own, so that helpers of the same name do not meet. Params are macros and
entries have C linkage, which no namespace holds apart: those of the second kernel get a suffix, and so do its tensor
maps, workspaces and regions. Macros that a part defines end with it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fitness.expressions import Expression
from fitness.header import FormatChoice, Header, KernelError, Launch, Param, TensorMap, Workspace
from fitness.kernel import Kernel, parse_kernel
from mutations.header_text import header_text

MOST_PARTS: Final = 3
"""Kernels that one file may hold: every further one costs compile time and spreads what other operators try."""

_TOKEN: Final = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
    |(?P<string>(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<number>\.?\d(?:[eEpP][+-]|'?\w|\.)*)
    |(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL | re.VERBOSE,
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")  # of an expression, dotted ones whole
_WORD: Final = re.compile(r"\w+")
_HEADER_END: Final = re.compile(r"^[ \t]*---\*/[^\n]*\n?", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^[ \t]*#[ \t]*(?P<word>\w+)(?P<rest>(?:\\\n|[^\n])*)\n?", re.MULTILINE)
_PART: Final = re.compile(r"^namespace (part_\d+) \{$", re.MULTILINE)
_DYNAMIC: Final = re.compile(r"\bextern\s+__shared__\s+(?P<type>[^;{}]*?)\b(?P<name>\w+)\s*\[\s*\]")
_REGION: Final = re.compile(r"^([ \t]*// region: )(\w+)(?=\()", re.MULTILINE)

Names = Mapping[str, str]


class CombinationError(ValueError):
    """Why two kernels cannot stand in one file, in words."""


@dataclass(frozen=True)
class Split:
    """Where one kernel gives way to the other.

    Attributes:
        dim: size of the task that decides, "N".
        values: thresholds a search may try, ascending; the first kernel serves sizes up to the threshold.
        value: the one to begin with.
    """

    dim: str
    values: tuple[int, ...]
    value: int


def parts(kernel: Kernel) -> int:
    """How many kernels a file holds."""
    return len(_PART.findall(_blanked(kernel.source))) or 1


def combine(low: Kernel, high: Kernel, split: Split) -> Kernel:
    """One kernel that runs as `low` where the size is at most the threshold and as `high` beyond, with their params.

    Raises:
        CombinationError: they cannot stand in one file.
    """
    if parts(low) + parts(high) > MOST_PARTS:
        raise CombinationError(f"together they have more than {MOST_PARTS} parts")
    shared, pinned = _format_params(low, high)
    ours, theirs = _Part.of(low), _Part.of(high)
    suffix = _suffix(low, high, ours, theirs)
    clashing = (low.header.params.keys() | high.header.params.keys()) - shared
    names = {name: name + suffix for name in sorted(clashing)}
    buffers = {**names, **{name: name + suffix for name in _declared(high.header)}}
    entries = dict.fromkeys(launch.kernel for launch in high.header.launches)
    written = {name: name + suffix for name in entries if name in theirs.names}
    pasted = {name: name + suffix for name in entries if name not in theirs.names}
    arrays = {name: name + suffix for name, types in theirs.arrays.items() if ours.arrays.get(name, types) != types}
    renamed = theirs.renamed({**arrays, **names, **written}, suffix, parts(low))
    source = "".join(
        (
            *dict.fromkeys((*ours.includes, *renamed.includes)),
            "\n",
            ours.wrapped(1 if parts(low) == 1 else None, {}),
            "\n",
            renamed.wrapped(parts(low) + 1 if parts(high) == 1 else None, pasted),
        )
    )
    header = _Union(low, high, names, buffers, {**written, **pasted}, shared, pinned)
    threshold = _free(f"SPLIT_{split.dim}", low.header.params.keys() | set(names.values()))
    values = {
        **low.params,
        **{names.get(name, name): value for name, value in high.params.items()},
        threshold: split.value,
    }
    middle = split.values[(len(split.values) - 1) // 2]
    params = {**header.params(), threshold: Param(split.values, middle)}
    launches = header.launches(f"{split.dim} <= {threshold}", f"{split.dim} > {threshold}")
    about = f"{split.dim} <= {threshold}: {low.header.about}; else: {high.header.about}"
    whole = replace(header.rules(), about=about, params=params, launches=launches)
    try:
        return _parsed(whole, source, values)
    except KernelError as error:
        raise CombinationError(f"{error.problem}; {error.fix}") from None


def _parsed(header: Header, source: str, values: Mapping[str, int]) -> Kernel:
    """With the defaults of both sources, so that all children of two sources are alike but for their params."""
    try:
        return parse_kernel(f"{header_text(header)}{source}", params=values)
    except KernelError:  # the defaults need not go with a format that is fixed now
        now = {name: replace(param, default=values[name]) for name, param in header.params.items()}
        return parse_kernel(f"{header_text(replace(header, params=now))}{source}", params=values)


# -- code -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """The code of a kernel without its header: its `#include` lines, and the rest."""

    includes: tuple[str, ...]
    code: str

    @staticmethod
    def of(kernel: Kernel) -> _Part:
        """Raises CombinationError where code before an `#include` would change what it means."""
        start = _HEADER_END.search(kernel.source)
        text = kernel.source[start.end() :] if start else kernel.source
        includes, code, at, seen = [], [], 0, ""
        for match in _DIRECTIVE.finditer(_blanked(text)):
            if match["word"] == "include":
                if seen:
                    raise CombinationError(f"an #include stands behind #{seen} and cannot move to the top")
                includes.append(text[match.start() : match.end()].strip() + "\n")
                code.append(text[at : match.start()])
                at = match.end()
            elif match["word"] != "pragma":
                seen = match["word"]
        code.append(text[at:])
        return _Part(tuple(includes), "".join(code).strip("\n") + "\n")

    @property
    def names(self) -> frozenset[str]:
        """Every identifier of the code."""
        return frozenset(match["name"] for match in _TOKEN.finditer(self.code) if match["name"])

    @functools.cached_property
    def arrays(self) -> dict[str, set[str]]:
        """Dynamic shared memory by name, with its types: in entries of C linkage it is the same in every namespace."""
        found: dict[str, set[str]] = {}
        for match in _DYNAMIC.finditer(_blanked(self.code)):
            found.setdefault(match["name"], set()).add(" ".join(match["type"].split()))
        return found

    def renamed(self, names: Names, suffix: str, before: int) -> _Part:
        """With other identifiers and names of regions, and its own parts numbered from `before` + 1."""
        numbered = {f"part_{n}": f"part_{n + before}" for n in range(1, MOST_PARTS + 1)}
        code = _with_names(self.code, {**(numbered if _PART.search(self.code) else {}), **names})
        return _Part(self.includes, _REGION.sub(lambda match: f"{match[1]}{match[2]}{suffix}", code))

    def wrapped(self, number: int | None, pasted: Names) -> str:
        """In a namespace, unless it has its own; its macros end with it.

        Args:
            number: of the part; None: it has namespaces already.
            pasted: new names of entries whose names the code makes from pieces: macros rename what comes out.
        """
        text = (
            self.code if number is None else f"namespace part_{number} {{\n{self.code}}}  // namespace part_{number}\n"
        )
        lines = [match for match in _DIRECTIVE.finditer(_blanked(text)) if match["word"] in ("define", "undef")]
        ended = {match["rest"].strip() for match in lines if match["word"] == "undef"}
        made = [_WORD.search(match["rest"]) for match in lines if match["word"] == "define"]
        leaks = dict.fromkeys(match[0] for match in made if match and match[0] not in ended)
        before = "".join(f"#define {old} {new}\n" for old, new in pasted.items())
        after = "".join(f"#undef {name}\n" for name in (*leaks, *pasted))
        return f"{before}{text}{after}"


def _blanked(text: str) -> str:
    """The text with its comments and raw strings blank: as long, with the same lines."""

    def blank(match: re.Match[str]) -> str:
        hidden = match["comment"] is not None or match["fence"] is not None
        return re.sub(r"[^\n]", " ", match[0]) if hidden else match[0]

    return _TOKEN.sub(blank, text)


def _with_names(code: str, names: Names) -> str:
    """The code with whole identifiers renamed; comments and strings stay."""
    return _TOKEN.sub(lambda match: names.get(match["name"] or "", match[0]), code)


def _suffix(low: Kernel, high: Kernel, ours: _Part, theirs: _Part) -> str:
    """The first that makes no name which either kernel has."""
    taken = ours.names | theirs.names
    for kernel in (low, high):
        header = kernel.header
        taken |= header.params.keys() | {launch.kernel for launch in header.launches}
        taken |= set(_declared(header))
    taken |= {match[2] for match in _REGION.finditer(ours.code + theirs.code)}
    number = parts(low) + 1
    while any(name.endswith(f"_{number}") and name[: -len(f"_{number}")] in taken for name in taken):
        number += 1
    return f"_{number}"


def _declared(header: Header) -> list[str]:
    """Names of workspaces and tensor maps."""
    return [*(space.name for space in header.workspaces), *(each.name for each in header.tensormaps)]


def _free(name: str, taken: Iterable[str]) -> str:
    held, number, free = set(taken), 1, name
    while free in held:
        number += 1
        free = f"{name}_{number}"
    return free


# -- header -----------------------------------------------------------------------------------------------------------


def _format_params(low: Kernel, high: Kernel) -> tuple[set[str], set[str]]:
    """Params that choose the format: those both kernels use alike, and those that have to keep their values.

    Raises:
        CombinationError: W is stored in two ways.
    """
    if low.format != high.format:
        raise CombinationError("they store W in two ways")
    ours, theirs = low.header.format.options, high.header.format.options
    options = ours.keys() | theirs.keys()
    named = {str(choice) for choice in (*ours.values(), *theirs.values())}
    named &= low.header.params.keys() | high.header.params.keys()
    shared = {
        name
        for name in named & low.header.params.keys() & high.header.params.keys()
        if all((ours.get(key) == name) == (theirs.get(key) == name) for key in options)
    }
    return shared, named - shared


@dataclass(frozen=True)
class _Union:
    """The headers of two kernels in one.

    Attributes:
        names: new names of the second one's params. buffers: of those, its workspaces and its tensor maps.
        entries: of its kernels.
        shared, pinned: params that choose the format: one for both, or kept at their values.
    """

    low: Kernel
    high: Kernel
    names: Names
    buffers: Names
    entries: Names
    shared: set[str]
    pinned: set[str]

    def rules(self) -> Header:
        """What holds for the whole file. Raises CombinationError where the two disagree."""
        ours, theirs = self.low.header, self.high.header
        if ours.options != theirs.options:
            raise CombinationError("they are compiled with different options")
        return Header(
            about="",
            format=self._format(),
            launches=(),
            params={},
            require=self._all(ours.require, theirs.require),
            constraints=self._all(ours.constraints, theirs.constraints),
            atomics=ours.atomics or theirs.atomics,
            align=max(ours.align, theirs.align),
            dtypes=_common("dtypes", ours.dtypes, theirs.dtypes),
            out_dtypes=_common("out_dtypes", ours.out_dtypes, theirs.out_dtypes),
            layouts=_common("layouts", ours.layouts, theirs.layouts),
            archs=_common("archs", ours.archs, theirs.archs),
            options=ours.options,
            workspaces=(*ours.workspaces, *(self._workspace(space) for space in theirs.workspaces)),
            tensormaps=(*ours.tensormaps, *(self._tensormap(each) for each in theirs.tensormaps)),
        )

    def params(self) -> dict[str, Param]:
        """Those of both; shared ones with the values that both list."""
        found: dict[str, Param] = {}
        for kernel, names in ((self.low, {}), (self.high, self.names)):
            for name, param in kernel.header.params.items():
                value = kernel.params[name]
                if name in self.shared:
                    both = [value for value in found[name].values if value in param.values] if name in found else None
                    values = tuple(param.values if both is None else both)
                    default = found[name].default if name in found else param.default
                    found[name] = Param(values, default if default in values else value)
                else:
                    fixed = Param((value,), value)
                    found[names.get(name, name)] = fixed if name in self.pinned else param
        return found

    def launches(self, low: str, high: str) -> tuple[Launch, ...]:
        """Those of both, each under its condition."""
        ours = [replace(launch, when=_and(low, launch.when)) for launch in self.low.header.launches]
        return (*ours, *(self._launch(launch, high) for launch in self.high.header.launches))

    def _format(self) -> FormatChoice:
        options = self.low.header.format.options
        if self.pinned or options != self.high.header.format.options:
            chosen = self.low.format.options
            options = {key: name if (name := options.get(key)) in self.shared else chosen[key] for key in chosen}
        return FormatChoice(self.low.format.name, options)

    def _launch(self, launch: Launch, condition: str) -> Launch:
        x, y, z = self._each(launch.grid)
        bx, by, bz = self._each(launch.block)
        cx, cy, cz = self._each(launch.cluster)
        return replace(
            launch,
            kernel=self.entries[launch.kernel],
            grid=(x, y, z),
            block=(bx, by, bz),
            cluster=(cx, cy, cz),
            shared=self._renamed(launch.shared),
            args=tuple(self.buffers.get(name, name) for name in launch.args),
            memset=tuple(self.buffers.get(name, name) for name in launch.memset),
            when=_and(condition, self._renamed(launch.when)),
        )

    def _workspace(self, space: Workspace) -> Workspace:
        return replace(space, name=self.buffers[space.name], bytes=self._renamed(space.bytes))

    def _tensormap(self, each: TensorMap) -> TensorMap:
        return replace(
            each,
            name=self.buffers[each.name],
            tensor=self.buffers.get(each.tensor, each.tensor),
            box=self._each(each.box),
            dims=self._each(each.dims),
            strides=self._each(each.strides),
            element_strides=self._each(each.element_strides),
        )

    def _all(self, ours: Sequence[Expression], theirs: Sequence[Expression]) -> tuple[Expression, ...]:
        return tuple(dict.fromkeys((*ours, *self._each(theirs))))

    def _each(self, expressions: Sequence[Expression]) -> tuple[Expression, ...]:
        return tuple(self._renamed(expression) for expression in expressions)

    def _renamed(self, expression: Expression) -> Expression:
        return Expression(_NAME.sub(lambda match: self.names.get(match[0], match[0]), expression.text))


def _common(key: str, ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    """What both are written for; empty: anything."""
    both = tuple(value for value in ours or theirs if not theirs or value in theirs)
    if not both and (ours or theirs):
        raise CombinationError(f"they have no {key} in common")
    return both


def _and(condition: str, when: Expression) -> Expression:
    return Expression(condition if when.text == "1" else f"{condition} and ({' '.join(when.text.split())})")
