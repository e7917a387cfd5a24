"""Block order, liveness and taint."""

from __future__ import annotations

from fitness.devices.simulator import cfg, ptx_parser
from fitness.devices.simulator.blocks import Graph

LOOP = """
.visible .entry k(.param .u64 a)
{
  .reg .pred %p<4>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [a];
  mov.u32 %r1, 0;
HEAD:
  setp.ge.s32 %p1, %r1, 10;
  @%p1 bra DONE;
  setp.eq.s32 %p2, %r1, 5;
  @%p2 bra DONE;
  @%p3 bra ELSE;
  add.s32 %r2, %r1, 1;
  bra JOIN;
ELSE:
  add.s32 %r2, %r1, 2;
JOIN:
  mov.u32 %r1, %r2;
  bra HEAD;
DONE:
  ld.global.f32 %f1, [%rd1];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd1], %f2;
  ret;
}
"""


def graph(text: str = LOOP) -> Graph:
    return cfg.build(ptx_parser.parse(text).functions["k"])


def find(found: Graph, opcode: str) -> int:
    return next(b.index for b in found.blocks for i in b.instructions if i.name == opcode)


def test_loops_come_before_what_follows_them_and_arms_before_their_join() -> None:
    found = graph()
    order = [block.terminator.kind for block in found.blocks]
    assert order[-1] == "exit"
    join = next(b.index for b in found.blocks if b.instructions and b.instructions[0].name == "mov.u32" and b.index)
    arms = [b.index for b in found.blocks if any(i.name == "add.s32" for i in b.instructions)]
    assert max(arms) < join < find(found, "ld.global.f32")


def test_live_registers_and_those_nobody_defined() -> None:
    found = graph()
    assert found.blocks[found.entry].live_in == ("p3",)
    assert set(found.blocks[find(found, "ld.global.f32")].live_in) == {"rd1"}


def test_taint_comes_from_memory_and_undefined_registers() -> None:
    assert graph().tainted >= {"p3", "f1", "f2"}
    assert not graph().tainted & {"r1", "r2", "rd1", "p1"}


def test_guarded_barriers_become_branches() -> None:
    text = ".visible .entry k() { .reg .pred %p<2>; setp.eq.u32 %p1, %tid.x, 0; @%p1 bar.sync 0; ret; }"
    assert [b.terminator.kind for b in graph(text).blocks] == ["branch", "barrier", "exit"]


def test_guarded_writes_keep_the_old_value_alive() -> None:
    text = """.visible .entry k() { .reg .pred %p<2>; .reg .b32 %r<3>; mov.u32 %r1, 1; bar.sync 0;
      setp.eq.u32 %p1, %tid.x, 0; @%p1 mov.u32 %r1, 2; bar.sync 0; mov.u32 %r2, %r1; ret; }"""
    assert "r1" in graph(text).blocks[1].live_in
