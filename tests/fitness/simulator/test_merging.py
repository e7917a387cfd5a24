"""Scalar shared loads that ptxas merges, on PTX as NVRTC writes it."""

from __future__ import annotations

import numpy as np

from fitness.devices.simulator.cfg import build
from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.merging import mergeable, merged_code
from fitness.devices.simulator.ptx_parser import parse
from fitness.devices.simulator.tally import Tally

PTX = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k()
{
  .reg .b32 %r<9>;
  .reg .f32 %f<9>;
  mov.u32 %r1, %tid.x;
  BODY
  ret;
}
"""


def groups(*body: str) -> list[tuple[int, ...]]:
    function = parse(PTX.replace("BODY", "\n  ".join(body))).functions["k"]
    graph = build(function)
    loads = [i for block in graph.blocks for i in block.instructions if i.op[0] in ("ld", "st")]
    return mergeable(graph, {id(instruction): site for site, instruction in enumerate(loads)})


def load(number: int, offset: int, base: str = "%r1") -> str:
    return f"ld.shared.f32 %f{number}, [{base}+{offset}];"


def test_four_consecutive_words_are_one_load_whatever_their_order() -> None:
    assert groups(load(1, 8), load(2, 0), load(3, 4), load(4, 12)) == [(1, 2, 0, 3)]


def test_pairs_and_odd_ones() -> None:
    assert groups(load(1, 0), load(2, 4), load(3, 8)) == [(0, 1)]
    assert groups(load(1, 4), load(2, 8)) == []


def test_another_base_or_a_store_or_a_barrier_in_between_keeps_loads_apart() -> None:
    assert groups(load(1, 0), load(2, 4, "%r2")) == []
    assert groups(load(1, 0), "add.s32 %r1, %r1, 4;", load(2, 4)) == []
    assert groups(load(1, 0), "st.shared.f32 [%r3], %f1;", load(2, 4)) == []
    assert groups(load(1, 0), "bar.sync 0;", load(2, 4)) == []


def test_the_first_load_stands_for_the_group() -> None:
    code = ((Op("load_shared", defs=(1,), site=1), Op("int"), Op("load_shared", defs=(2,), site=0)),)
    merged = merged_code(code, [(0, 1)])
    assert merged == ((Op("load_shared", defs=(1, 2), site=0), Op("int")),)


def counted(start: int) -> Tally:
    code = ((Op("load_shared", site=0), Op("load_shared", site=1)),)
    sites = [("load_shared", 3, 4, False)] * 2
    tally = Tally("k", code, sites, blocks_total=1, blocks_simulated=1, warps_per_block=1, buffers={}, merges=[(0, 1)])
    lanes = np.arange(32, dtype=np.int64)
    tally.execute(0, None, 32)
    for site in (0, 1):
        tally.shared_access(site, start + 8 * lanes + 4 * site, lanes)
    return tally


def test_aligned_groups_count_once_and_misaligned_ones_apart() -> None:
    together, apart = counted(0).finish(), counted(4).finish()
    assert [site.wavefronts for site in together.sites] == [2, 0]
    assert together.issued().tolist() == [1]
    assert [site.wavefronts for site in apart.sites] == [2, 2]
    assert apart.issued().tolist() == [2]
