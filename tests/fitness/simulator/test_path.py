"""The critical path of one warp."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.devices.simulator import path
from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.path import Scheduler, WarpPath, loops, warp_path
from fitness.devices.simulator.pipes import Timing
from fitness.devices.simulator.schedule import regions, scheduled

LATENCY = {"int": 4.0, "load_global": 500.0, "cp_async": 500.0, "mma:m16n8k16:f16": 25.0, "barrier": 20.0}
OCCUPANCY = {"mma:m16n8k16:f16": 6.0}


def timing(op: Op) -> Timing:
    return Timing(op.kind, OCCUPANCY.get(op.kind, 1.0), LATENCY.get(op.kind, 1.0))


def follow(*blocks: list[Op], trace: list[int] | None = None) -> WarpPath:
    code = tuple(tuple(block) for block in blocks)
    return warp_path(np.array(trace if trace is not None else [0], dtype=np.int32), Scheduler(code, timing))


def order(*ops: Op) -> list[str]:
    return [op.kind for op, _ in scheduled((ops,), (0,), timing).steps]


def test_a_chain_takes_its_latencies_and_independent_instructions_only_issue_slots() -> None:
    chain = [Op("int", defs=(i + 1,), uses=(i,)) for i in range(100)]
    assert follow(chain).clocks == pytest.approx(99 * 4 + 1)
    assert follow([Op("int", defs=(i,)) for i in range(100)]).clocks == pytest.approx(100)


def test_independent_loads_overlap_and_dependent_ones_do_not() -> None:
    use = [Op("int", defs=(90,), uses=(8, 7, 6, 5))]
    apart = [Op("load_global", defs=(i,), uses=(1,)) for i in range(5, 9)]
    chased = [Op("load_global", defs=(i,), uses=(i - 1,)) for i in range(5, 9)]
    assert follow(apart + use).clocks < 510
    assert follow(chased + use).clocks > 2000


def test_loads_are_hoisted_within_a_block_as_ptxas_does() -> None:
    interleaved = []
    for i in range(4):
        interleaved += [Op("load_global", defs=(10 + i,), uses=(1,)), Op("int", defs=(20 + i,), uses=(10 + i,))]
    assert order(*interleaved)[:4] == ["load_global"] * 4
    assert follow(interleaved).clocks < 510


def test_loads_stay_behind_a_barrier_and_a_store_to_their_space() -> None:
    fenced = [Op("barrier"), Op("load_shared", defs=(1,)), Op("store_shared", uses=(1,)), Op("load_shared", defs=(2,))]
    assert order(*fenced) == [op.kind for op in fenced]


def test_registers_are_renamed_so_that_reuse_of_a_name_holds_nothing_back() -> None:
    ops = []
    for _ in range(4):
        ops += [Op("load_global", defs=(5,), uses=(1,)), Op("int", defs=(6,), uses=(5, 6))]
    assert follow(ops).clocks < 530


def test_short_conditionals_join_their_surroundings_and_long_ones_do_not() -> None:
    short, long = tuple([Op("int")] * 4), tuple([Op("int")] * 40)
    assert regions((long, short, long, long), (0, 1, 2)) == [(0, 1, 2)]
    assert regions((long, short, long, long), (0, 2)) == [(0, 2)]
    assert regions((long, long, long), (0, 1, 2)) == [(0,), (1,), (2,)]
    assert regions((long, long, long), (0, 2)) == [(0,), (2,)]
    assert regions((short, short), (0, 1, 0, 1)) == [(0, 1), (0, 1)]


def test_small_loops_are_unrolled_so_that_their_loads_overlap() -> None:
    body = [Op("load_global", defs=(2,), uses=(1,)), Op("int", defs=(3,), uses=(2, 3)), Op("int", 0, (1,), (1,))]
    body.append(Op("branch"))
    assert follow(body, trace=[0] * 400).clocks == pytest.approx(100 * 520, rel=0.05)
    assert follow([*body[:-1], Op("barrier"), body[-1]], trace=[0] * 400).clocks > 400 * 500


def test_accumulators_of_their_own_keep_the_tensor_pipe_busy() -> None:
    kind = "mma:m16n8k16:f16"
    same = [Op(kind, defs=(1,), uses=(1,)) for _ in range(40)]
    own = [Op(kind, defs=(i % 8,), uses=(i % 8,)) for i in range(40)]
    assert follow(same).clocks == pytest.approx(39 * 25 + 1)
    assert follow(own).clocks == pytest.approx(39 * 6 + 1)


def pipeline(stages: int, steps: int) -> WarpPath:
    load = [Op("cp_async", 5), Op("cp_async_commit", 5)]
    body = [Op("cp_async_wait", 6, argument=stages - 2), Op("barrier", 6), *load]
    body += [Op("int", 7, (1,), (1,)) for _ in range(25)]
    return follow(load * (stages - 1), body, trace=[0] + [1] * steps)


def test_stages_of_asynchronous_copies_hide_latency() -> None:
    two, three, six = (pipeline(stages, 200).clocks for stages in (2, 3, 6))
    assert two > 1.4 * three > 1.4 * six
    assert six == pytest.approx(200 * (25 * 4 + 20), rel=0.1)


def test_a_loop_followed_in_part_takes_as_long_as_one_followed_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    part = pipeline(4, 500)
    monkeypatch.setattr(path, "_MOST_ITERATIONS", 10_000)
    whole = pipeline(4, 500)
    assert part.clocks == pytest.approx(whole.clocks, rel=0.01)
    assert part.issued == pytest.approx(whole.issued)


def test_path_is_linear_in_the_number_of_iterations() -> None:
    short, medium, long = (pipeline(4, steps).clocks for steps in (32, 64, 512))
    assert short + (medium - short) * (512 - 32) / 32 == pytest.approx(long, rel=0.01)


def test_stalls_name_what_was_waited_for() -> None:
    found = pipeline(2, 50)
    cause = max(found.stalls, key=lambda key: found.stalls[key])
    assert cause == ("cp_async", 5)
    assert sum(found.stalls.values()) + found.issued == pytest.approx(found.clocks, rel=0.05)


def test_moves_cost_nothing_and_pass_latency_on() -> None:
    moved = [Op("load_global", defs=(1,)), Op("other", defs=(2,), uses=(1,), issues=0.0), Op("int", uses=(2,))]
    assert follow(moved).clocks == pytest.approx(501)


def test_traces_compress_to_loops() -> None:
    trace = np.array([0, *[1] * 50, 2, *[3, 4, 5] * 20, 6], dtype=np.int32)
    assert loops(trace.tolist()) == [((0,), 1), ((1,), 50), ((2,), 1), ((3, 4, 5), 20), ((6,), 1)]


def test_wgmma_runs_in_the_background_until_its_group_is_waited_for() -> None:
    """Two products of 100 clocks: other work goes on meanwhile, and `wait_group 1` waits for the first only."""

    def background(op: Op) -> Timing:
        if op.kind.startswith("wgmma:"):
            return Timing("wgmma issue", 1.0, 0.0, background=100.0)
        return Timing(op.kind, 1.0, 10.0 if op.kind == "wgmma_wait" else 1.0)

    def clocks(*ops: Op) -> float:
        return warp_path(np.array([0], dtype=np.int32), Scheduler((ops,), background)).clocks

    group = [Op("wgmma:m64n256k16:f16", defs=(1, 2), uses=(1, 2)), Op("wgmma_commit")]
    work = [Op("store_shared", uses=(10 + i,)) for i in range(50)]
    assert clocks(*group, *group) == pytest.approx(4)
    assert clocks(*group, *group, Op("wgmma_wait", argument=1)) == pytest.approx(111, abs=2)
    assert clocks(*group, *group, Op("wgmma_wait", argument=0)) == pytest.approx(211, abs=2)
    assert clocks(*group, *group, *work, Op("wgmma_wait", argument=0)) == pytest.approx(211, abs=2)


def test_the_tail_begins_behind_the_last_wait_for_an_mbarrier() -> None:
    """Also where the loop that waits is extrapolated."""
    code = [[Op("mbarrier_wait", defs=(1,)), *[Op("int", defs=(2,), uses=(1,)) for _ in range(20)]],
            [Op("int", defs=(3,)) for _ in range(300)]]  # fmt: skip
    found = follow(*code, trace=[0] * 100 + [1])
    assert found.tail == pytest.approx(320, abs=5)
    assert found.clocks == pytest.approx(100 * 21 + 300, rel=0.02)
