from __future__ import annotations

import pytest

from evo.archive import Archive, Refused, RunRecord
from evo.errors import RefError
from evo.lineage import Branch, Lineage, difference, resolve
from evo.observer import Confirmation
from fitness.kernel import Kernel, parse_kernel
from fitness.outcome import CompileFailed, Gate, Outcome, Timed
from mutations.operator import Candidate, Plan
from tests.evo import fakes

TASK = fakes.experiment().checked_task


def timed(kernel: Kernel) -> Timed:
    return Timed(Gate.TIMING, code_key=kernel.id, timings=fakes.timings(kernel, TASK))


@pytest.fixture(name="archive")
def _archive() -> Archive:
    """Seeds 0 and 1; 2 from 0; 3 from 2 and 1; 4 refused; 5 from 3 with other source; 6 from 0, does not compile."""
    archive = Archive.memory()
    run = archive.add_run(
        RunRecord("", "fake", {}, 7, "simulator", "H200", "sm_90a", "modelled", "0", None, {}, "finished", "2026")
    ).id
    archive.add_baseline(run, "dense", fakes.timings(fakes.kernel("dense"), TASK))
    other = parse_kernel(fakes.source("fast").replace("{}", "{ /* new */ }"), params={"A": 4, "B": 8})
    made: list[tuple[tuple[int, ...], Kernel | None]] = [
        ((), fakes.kernel("slow")),
        ((), fakes.kernel("fast")),
        ((0,), fakes.kernel("fast", A=2)),
        ((2, 1), fakes.kernel("fast", A=4, B=4)),
        ((1, 2), None),
        ((3,), other),
        ((0,), fakes.kernel("slow", C=8)),
    ]
    for n, (parents, kernel) in enumerate(made):
        plan = Plan(n, len(parents) and 1, 0, "tune" if parents else "seed", parents)
        entry = Refused(plan, "no") if kernel is None else Candidate(plan, kernel, f"reason {n}")
        archive.add_entries(run, [entry])
        if kernel is not None:
            outcome: Outcome = CompileFailed(Gate.COMPILE) if n == 6 else timed(kernel)
            archive.add_outcome(run, n, outcome)
    return archive


def lineage(archive: Archive) -> Lineage:
    return Lineage(archive, archive.runs()[0])


def test_nodes_have_everything(archive: Archive) -> None:
    tree = lineage(archive)
    assert [node.n for node in tree.nodes()] == list(range(7))
    node = tree.node(2)
    assert node.kernel == fakes.kernel("fast", A=2)
    assert node.reason == "reason 2"
    assert node.time_us is not None
    assert node.speedup == pytest.approx(
        fakes.time_us(fakes.kernel("dense"), {"K": 1}) / fakes.time_us(fakes.kernel("fast", A=2), {"K": 1})
    )
    assert tree.node(4).kernel is None
    assert tree.node(4).outcome is None
    assert tree.node(6).time_us is tree.node(6).speedup is None


def test_relations(archive: Archive) -> None:
    tree = lineage(archive)
    assert [node.n for node in tree.parents(3)] == [2, 1]
    assert [node.n for node in tree.children(2)] == [3, 4]
    assert [node.n for node in tree.ancestors(5)] == [0, 1, 2, 3]
    assert [node.n for node in tree.line(5)] == [0, 2, 3, 5]
    assert tree.parents(0) == ()


def test_path_says_what_changed(archive: Archive) -> None:
    steps = lineage(archive).path(5)
    assert steps[0].change is None
    changes = [step.change for step in steps[1:]]
    assert changes[0] is not None
    assert changes[0].params == {"A": (1, 2)}
    assert 'about  = "slow"' in changes[0].source
    assert changes[1] is not None
    assert changes[1].params == {"A": (2, 4), "B": (1, 4)}
    assert changes[1].source == ""
    assert changes[2] is not None
    assert (changes[2].params, changes[2].added, changes[2].removed) == ({"B": (4, 8)}, 1, 1)
    assert "+extern" in changes[2].source
    assert "new" in changes[2].source


def test_tree(archive: Archive) -> None:
    tree = lineage(archive)

    def shape(branches: tuple[Branch, ...]) -> list[object]:
        return [[branch.node.n, shape(branch.children)] for branch in branches]

    assert shape(tree.tree()) == [[0, [[2, [[3, [[5, []]]]]], [6, []]]], [1, [[4, []]]]]
    assert shape(tree.tree(3)) == [[0, [[2, [[3, [[5, []]]]]]]]]


def test_best_is_the_best_confirmed(archive: Archive) -> None:
    run = archive.runs()[0].id
    best = lineage(archive).best()
    assert best is not None
    assert best.n == 5
    archive.add_confirmation(run, Confirmation(5, "refuted", None, None, None))
    assert lineage(archive).best() is None
    archive.add_confirmation(run, Confirmation(2, "confirmed", 1.0, 1.0, 1.0))
    archive.add_confirmation(run, Confirmation(3, "confirmed", 1.0, 1.0, 1.0))
    best = lineage(archive).best()
    assert best is not None
    assert best.n == 3
    assert resolve(archive, "best").n == 3


def test_diff_between_any_two(archive: Archive) -> None:
    tree = lineage(archive)
    assert tree.diff(1, 2).params == {"A": (1, 2)}
    assert tree.diff(1, 1).empty
    with pytest.raises(RefError, match="candidate 4 was refused"):
        tree.diff(4, 1)


def test_difference_of_params_that_one_lacks() -> None:
    old = fakes.kernel()
    new = parse_kernel(old.source.replace("C = {", "D = {"))
    assert difference(old, new).params == {"C": (1, None), "D": (None, 1)}


def test_references(archive: Archive) -> None:
    run = archive.runs()[0]
    for ref, n in (
        ("best", 5), ("3", 3), (f"{run.id}/3", 3), (f"{run.id}/best", 5), (run.id, None), ("fake", None), ("fake/2", 2),
        (run.id[:-1], None),
    ):  # fmt: skip
        found = resolve(archive, ref)
        assert (found.run, found.n) == (run, n)


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("99", "has no candidate 99; its candidates: 0 to 6"),
        ("fake/99", "has no candidate 99"),
        ("fake/x", '"x" is no candidate; write best'),
        ("other", 'no run "other"'),
        ("/3", 'no run ""'),
    ],
)
def test_references_to_nothing(archive: Archive, ref: str, words: str) -> None:
    with pytest.raises(RefError, match=words):
        resolve(archive, ref)


def test_an_empty_archive() -> None:
    with pytest.raises(RefError, match="holds no run; run an experiment first"):
        resolve(Archive.memory(), "best")
    with pytest.raises(RefError, match="no run x-1"):
        Lineage(Archive.memory(), "x-1")


def test_several_baselines_are_kept_apart(archive: Archive) -> None:
    run = archive.runs()[0].id
    archive.add_baseline(run, "vendor", fakes.timings(fakes.kernel("fast"), TASK))
    found = lineage(archive)
    assert [name for name, _ in found.baselines] == ["dense", "vendor"]
    assert found.baseline == ("dense", fakes.timings(fakes.kernel("dense"), TASK))
