"""Parsing PTX: statements, scopes, source lines, variables."""

from __future__ import annotations

import pytest

from fitness.devices.simulator import ptx, ptx_parser
from fitness.devices.simulator.variables import PtxError, parse_variable

MODULE = """
.version 9.5
.target sm_90a
.address_size 64
.const .align 4 .b8 table[8] = {0, 0, 128, 63};
.visible .entry k(
  .param .u64 k_param_0,
  .param .align 4 .b8 k_param_1[12]
)
.maxntid 128, 1, 1
{
  .reg .pred %p<3>; .reg .b32 %r<5>; .reg .b64 %rd<2>;
  .loc 1 7 3
  ld.param.u64 %rd1, [k_param_0+0];
  .loc 2 90 1, function_name $L__info_string0, inlined_at 1 9 5
  { .reg .pred %p1; .reg .b32 p;  setp.eq.s32 %p1, %r1, 0; @!%p1 mov.b32 p, -2; }
$L__BB0_1:
  @%p1 ld.global.nc.L2::128B.v2.u32 {%r1, _}, [%rd1+-8];
  shfl.sync.bfly.b32 %r2|%p2, %r1, 0x1f, 31, -1;
  .loc 2 95 1
  bra.uni $L__BB0_1;
}
.file 1 "/anywhere/candidate.cu"
.file 2 "/include/cuda_fp16.hpp"
"""


def body() -> list[ptx.Instruction]:
    function = ptx_parser.parse(MODULE).functions["k"]
    return [item for item in function.body if isinstance(item, ptx.Instruction)]


def test_source_lines_are_the_candidates_own() -> None:
    assert [i.line for i in body()] == [7, 9, 9, 9, 9, 9]


def test_inner_scopes_shadow_outer_registers() -> None:
    inner, outer = body()[1], body()[3]
    assert isinstance(inner.operands[0], ptx.Register)
    assert outer.guard is not None
    assert inner.operands[0].name != outer.guard[0].name == "p1"


def test_operands_of_every_kind() -> None:
    load, shuffle = body()[3], body()[4]
    assert load.op == ("ld", "global", "nc", "L2::128B", "v2", "u32")
    assert load.operands == (
        ptx.Vector((ptx.Register("r1", "b32"), ptx.Sink())),
        ptx.Address(ptx.Register("rd1", "b64"), -8),
    )
    assert shuffle.operands[0] == ptx.Pair(ptx.Register("r2", "b32"), ptx.Register("p2", "pred"))
    assert shuffle.operands[2:] == (ptx.Immediate("0x1f"), ptx.Immediate("31"), ptx.Immediate("-1"))
    guarded = body()[2]
    assert guarded.guard is not None
    assert guarded.guard[1] is False


def test_parameters_and_module_variables() -> None:
    module = ptx_parser.parse(MODULE)
    assert [(p.name, p.bytes, p.align) for p in module.functions["k"].parameters] == [
        ("k_param_0", 8, 8),
        ("k_param_1", 12, 4),
    ]
    assert bytes(module.variables[0].initial or b"") == bytes([0, 0, 128, 63, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("text", "space", "size", "image"),
    [
        (".shared .align 16 .b8 tile[1280]", "shared", 1280, None),
        (".extern .shared .align 16 .b8 dyn[]", "shared", 0, None),
        (".global .align 4 .u32 counter = 5", "global", 4, b"\5\0\0\0"),
        (".global .align 8 .f64 d[2] = {0d3FF0000000000000}", "global", 16, bytes(6) + b"\xf0\x3f" + bytes(8)),
        (".local .align 16 .b8 \t__local_depot0[64]", "local", 64, None),
        (".global .align 4 .f32 m[2][3]", "global", 24, None),
    ],
)
def test_variable_declarations(text: str, space: str, size: int, image: bytes | None) -> None:
    variable = parse_variable(text)
    assert (variable.space, variable.bytes) == (space, size)
    assert (None if variable.initial is None else bytes(variable.initial)) == image


def test_addresses_in_initialisers_are_kept_as_references() -> None:
    variable = parse_variable(".global .align 8 .u64 pointers[2] = {generic(table), table+4}")
    assert variable.references == ((0, "table", 0, 8), (8, "table", 4, 8))


def test_what_is_not_ptx_is_refused() -> None:
    with pytest.raises(PtxError):
        ptx_parser.parse(".visible .entry k() { mov.u32 %r1, 0; ")
    with pytest.raises(PtxError):
        parse_variable(".shared what")
