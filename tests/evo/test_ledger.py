from __future__ import annotations

from evo.archive import Archive, RunRecord
from evo.ledger import ArchiveLibrary, RunLedger, RunRecorder
from evo.observer import Confirmation
from fitness.outcome import Gate, Rejected, Timed
from mutations.operator import Candidate, Judged, Plan
from tests.evo import fakes

TASK = fakes.experiment().checked_task


def candidate(n: int, **params: int) -> Candidate:
    return Candidate(Plan(n, 0, 0, "seed"), fakes.kernel("fast", **params), "")


def test_the_first_of_a_kernel_stays() -> None:
    ledger = RunLedger([candidate(0), candidate(1, A=2), candidate(2)])
    assert ledger.first(fakes.kernel().id) == 0
    assert ledger.tried(fakes.kernel(A=2).id)
    assert not ledger.tried(fakes.kernel(A=4).id)
    assert ledger.first("x") is None


def test_candidates_are_pending_until_judged_whatever_the_order() -> None:
    ledger = RunLedger([candidate(0), candidate(1, A=2), candidate(2, A=4)])
    assert [one.plan.n for one in ledger.pending()] == [0, 1, 2]
    right = Timed(Gate.TIMING, timings=fakes.timings(fakes.kernel(), TASK))
    ledger.judged(Judged(candidate(2, A=4), right))
    ledger.judged(Judged(candidate(1, A=2), Rejected(Gate.PARSE)))
    ledger.judged(Judged(candidate(0), right))
    assert [one.candidate.plan.n for one in ledger.timed()] == [0, 2]
    assert ledger.pending() == ()


def run_with(archive: Archive, verdicts: dict[int, str], **changes: object) -> str:
    record = RunRecord("", "r", fakes.spec(**changes), 0, "simulator", "H200", "sm_90a", "modelled", "0", None, {},
                       "finished", "2026")  # fmt: skip
    run = archive.add_run(record).id
    for n, verdict in verdicts.items():
        archive.add_entries(run, [candidate(n, A=2 ** (n % 6))])
        archive.add_outcome(run, n, Timed(Gate.TIMING, timings=fakes.timings(fakes.kernel(), TASK)))
        archive.add_confirmation(run, Confirmation(n, verdict, 1.0 + n, None, None))  # type: ignore[arg-type]
    return run


def test_the_library_gives_confirmed_kernels_of_similar_tasks() -> None:
    archive = Archive.memory()
    other_shapes = run_with(archive, {1: "confirmed"}, task__shapes=[{"M": 64, "K": 64, "N": 8}])
    same = run_with(archive, {2: "confirmed", 3: "refuted", 4: "confirmed"})
    run_with(archive, {5: "confirmed"}, task__dtype="bfloat16")
    library = ArchiveLibrary(archive, None, "sm_90a")
    assert [judged.candidate.plan.n for judged in library.similar(TASK, 9)] == [4, 2, 1]
    assert [judged.candidate.plan.n for judged in library.similar(TASK, 1)] == [4]
    assert [judged.candidate.plan.n for judged in ArchiveLibrary(archive, same, "sm_90a").similar(TASK, 9)] == [1]
    assert other_shapes != same


def test_the_library_skips_experiments_it_does_not_know() -> None:
    archive = Archive.memory()
    run_with(archive, {1: "confirmed"}, task__op="unknown")
    assert ArchiveLibrary(archive, None, "sm_90a").similar(TASK, 9) == ()


def test_events_go_to_both() -> None:
    archive, watcher = Archive.memory(), fakes.Watcher()
    run = run_with(archive, {})
    RunRecorder(archive, run, watcher).event("note", {"n": 1})
    assert watcher.events == [("note", {"n": 1})]
    assert [event.data for event in archive.events(run)] == [{"n": 1}]


def test_of_equal_tasks_those_of_the_same_architecture_are_nearer() -> None:
    archive = Archive.memory()
    run_with(archive, {1: "confirmed"})  # sm_90a
    other = run_with(archive, {2: "confirmed"})
    archive.database.execute("update runs set arch = 'sm_80' where id = ?", [other])
    for arch, order in (("sm_90a", [1, 2]), ("sm_80", [2, 1])):
        found = ArchiveLibrary(archive, None, arch).similar(TASK, 9)
        assert [judged.candidate.plan.n for judged in found] == order
