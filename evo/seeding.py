"""Starting kernels and the baseline: from names in the task to kernels, saying what was dropped and why."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import seeds
from evo.errors import BaselineError, SeedError
from evo.observer import SeedNote
from fitness.kernel import Kernel, KernelError, load_kernel
from fitness.kernel_fit import arch_violation
from fitness.outcome import LaunchFailed, Outcome, Timed, TimedOut, Unsupported
from fitness.task import Task
from mutations.operator import Judged, Library

SIMILAR = "archive:similar"
"""In `task.seeds`: verified kernels of similar tasks from the archive."""

SIMILAR_PREFIX = "archive:"
"""Names of seeds that came from the archive begin with it."""

SIMILAR_LIMIT = 4


@dataclass(frozen=True)
class Seed:
    """A starting kernel and its name ("spmm/nm24_mma_sp", a path, "nm24-7f3a/42")."""

    name: str
    kernel: Kernel


def starting_seeds(
    task: Task, library: Library | None = None, *, arch: str = ""
) -> tuple[tuple[Seed, ...], tuple[SeedNote, ...]]:
    """Kernels to start from, in the order of `task.seeds`, each once.

    Args:
        task: what is to be computed.
        library: where "archive:similar" looks; None skips it.
        arch: of the card ("sm_90a"); kernels written for others are dropped. "": any.

    Returns:
        The seeds kept, and a note on every one considered.

    Raises:
        SeedError: a name that matches nothing, a file that is no kernel, or nothing left.
    """
    kept: dict[str, Seed] = {}
    notes = []
    for pattern in task.seeds:
        for seed in _matching(pattern, task, library):
            why = _objection(seed.kernel, task, kept, arch)
            notes.append(SeedNote(seed.name, why))
            if why is None:
                kept[seed.kernel.id] = seed
    if not kept:
        dropped = "; ".join(f"{note.name}: {note.dropped}" for note in notes) or "the list is empty"
        raise SeedError(f"task.seeds gives no kernel to start from ({dropped})", 'for example seeds = ["spmm/nm24_*"]')
    return tuple(kept.values()), tuple(notes)


def refusal(judged: Sequence[tuple[str, Outcome]]) -> SeedError | None:
    """Why a run cannot go on from its seeds, given their verdicts by name; None if it can.

    One that is wrong ends it. One that this card or simulator cannot run is left behind, and so is one from the
    archive, as long as another is valid.
    """
    for name, outcome in judged:
        left_behind = isinstance(outcome, Timed | Unsupported | LaunchFailed | TimedOut)
        if not left_behind and not name.startswith(SIMILAR_PREFIX):
            why = why_not(outcome)
            return SeedError(f"seed {name} fails: {why}", "correct it or take it out of task.seeds, then start anew")
    if not any(isinstance(outcome, Timed) for _, outcome in judged):
        why = why_not(judged[0][1]) if judged else "there is none"
        return SeedError(f"no seed is valid on this device ({why})", "name others in task.seeds")
    return None


def why_not(outcome: Outcome) -> str:
    """A failure in one phrase: kind, gate, line, message."""
    errors = [finding for finding in outcome.findings if finding.severity == "error"] or list(outcome.findings)
    if not errors:
        return f"{outcome.kind} at {outcome.stage.name.lower()}"
    line = f", line {errors[0].line}" if errors[0].line is not None else ""
    return f"{outcome.kind} at {outcome.stage.name.lower()}{line}: {errors[0].message}"


def baseline_kernel(task: Task) -> Seed:
    """The kernel that speedups on the modelled clock are counted against.

    Raises:
        BaselineError: the name matches no seed, several, or one that does not serve the task.
    """
    name = task.baseline_seed
    paths = _paths(name)
    if len(paths) != 1:
        found = f"{len(paths)} kernels" if paths else "no kernel"
        raise BaselineError(f'baseline "{name}" matches {found}', 'name one seed, or write baseline = "auto"')
    try:
        kernel = load_kernel(paths[0])
    except KernelError as error:
        raise BaselineError(f"baseline {name} cannot be read: {error}") from error
    why = task.unsupported(kernel.format)
    if why:
        raise BaselineError(f"baseline {name} does not serve this task: {why}", 'write baseline = "auto"')
    return Seed(name, kernel)


def _matching(pattern: str, task: Task, library: Library | None) -> Iterator[Seed]:
    if pattern == SIMILAR:
        yield from _similar(task, library)
        return
    paths = _paths(pattern)
    if not paths:
        if pattern.endswith(".cu"):
            raise SeedError(f'task.seeds: "{pattern}": no such file')
        raise SeedError(f'task.seeds: "{pattern}" matches no seed', _known(pattern))
    for path in paths:
        try:
            yield Seed(_name(path), load_kernel(path))
        except KernelError as error:
            raise SeedError(f"seed {error}") from error


def _similar(task: Task, library: Library | None) -> Iterator[Seed]:
    judged: Sequence[Judged] = library.similar(task, SIMILAR_LIMIT) if library is not None else ()
    for entry in judged:
        yield Seed(f"{SIMILAR_PREFIX}{entry.candidate.kernel.id[:12]}", entry.candidate.kernel)


def _paths(pattern: str) -> tuple[Path, ...]:
    """Files of a seed pattern: a `.cu` path or glob of the user's, else a name in the seed library."""
    if pattern.endswith(".cu"):
        own = Path(pattern)
        if own.is_file():
            return (own,)
        return tuple(sorted(own.parent.glob(own.name))) if own.parent.is_dir() else ()
    return tuple(seeds.seed_paths(pattern))


def _name(path: Path) -> str:
    """Seeds of the library by folder and stem, the user's own by path."""
    library = Path(seeds.__file__).resolve().parent
    resolved = path.resolve()
    if resolved.is_relative_to(library):
        return resolved.relative_to(library).with_suffix("").as_posix()
    return str(path)


def _known(pattern: str) -> str:
    """The names most like the one that matches nothing; where none is, those of its folder, else the folders."""
    names = [_name(path) for path in seeds.seed_paths("*/*")]
    alike = difflib.get_close_matches(pattern, names, n=3, cutoff=0.75)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    folder = pattern.split("/")[0]
    known = [name for name in names if name.startswith(f"{folder}/")] or sorted({n.split("/")[0] + "/*" for n in names})
    return f"known: {', '.join(known)}; or the path of a .cu file"


def _objection(kernel: Kernel, task: Task, kept: dict[str, Seed], arch: str) -> str | None:
    """Why a kernel cannot be a seed of this task, or None."""
    if kernel.id in kept:
        return f"the same as {kept[kernel.id].name}"
    why = task.unsupported(kernel.format)
    if why:
        return why
    if arch and (elsewhere := arch_violation(kernel, arch)):
        return elsewhere.message
    violations = task.domain_violations(kernel)
    return violations[0].message if violations else None
