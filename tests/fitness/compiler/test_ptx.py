"""What is read of PTX: signatures, bounds, source lines, and whether blocks can talk to each other."""

from __future__ import annotations

import pytest

from fitness.compiler.ptx import communicates, normalised, signatures, source_line
from fitness.devices.device import Parameter

PTX = """.version 8.0
.target sm_90a
// .entry commented_out(.param .u32 x) {
.visible .entry first(
	.param .u64 .ptr .global .align 16 first_param_0,
	.param .align 64 .b8 first_param_1[128],
	.param .f32 first_param_2
)
.maxntid 32, 4, 1
.minnctapersm 2
{
	.loc	2 10 3
	ld.param.u64 	%rd1, [first_param_0];
	.loc	3 99 1, function_name $L__info_string0, inlined_at 2 12 5
	atom.shared.add.u32 	%r1, [%r2], 1;
	.loc	3 98 1
	ret;
}
.visible .entry second()
.reqntid 64
{
	red.global.add.f32 	[%rd1], %f1;
	ret;
}
	.file	2 "/candidate.cu"
	.file	3 "/home/someone/include/cuda_fp16.hpp"
"""


def test_signatures() -> None:
    found = signatures(PTX)
    assert list(found) == ["first", "second"]
    assert found["first"].parameters == (
        Parameter("first_param_0", "u64", 8, pointer=True),
        Parameter("first_param_1", "b8", 128),
        Parameter("first_param_2", "f32", 4),
    )
    assert (found["first"].max_threads, found["first"].required_block) == (128, None)
    assert (found["second"].max_threads, found["second"].required_block) == (64, (64, 1, 1))


def line_of(text: str) -> int:
    return PTX[: PTX.index(text)].count("\n") + 1


@pytest.mark.parametrize(("text", "line"), [("ld.param", 10), ("atom.shared", 12), ("ret;", None), (".version", None)])
def test_source_lines_even_through_headers(text: str, line: int | None) -> None:
    assert source_line(PTX, line_of(text)) == line


def test_paths_of_this_machine_are_taken_out() -> None:
    text = normalised(PTX, "/home/someone/include")
    assert '.file	2 "candidate.cu"' in text
    assert '.file	3 "cuda_fp16.hpp"' in text
    assert source_line(text, line_of("ld.param")) == 10


def test_shared_atomics_stay_in_the_block_and_global_ones_do_not() -> None:
    assert not communicates(PTX, "first")
    assert communicates(PTX, "second")


@pytest.mark.parametrize(
    ("instruction", "talks"),
    [
        ("atom.global.add.u32 %r1, [%rd1], 1;", True),
        ("@%p1 red.relaxed.gpu.global.add.f32 [%rd1], %f1;", True),
        ("atom.add.u32 %r1, [%rd1], 1;", True),
        ("ld.volatile.global.u32 %r1, [%rd1];", True),
        ("ld.acquire.gpu.global.u32 %r1, [%rd1];", True),
        ("ld.volatile.shared.u32 %r1, [%r2];", False),
        ("atom.acquire.cta.shared::cta.cas.b32 %r1, [%r2], 0, 1;", False),
        ("ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", False),
        ("redux.sync.add.s32 %r1, %r2, -1;", False),
    ],
)
def test_which_instructions_talk_between_blocks(instruction: str, talks: bool) -> None:
    assert communicates(f".visible .entry k()\n{{\n\t{instruction}\n\tret;\n}}\n", "k") is talks


def test_a_called_function_counts_for_every_entry() -> None:
    function = ".func helper()\n{\n\tred.global.add.f32 [%rd1], %f1;\n}\n"
    assert communicates(function + PTX, "first")
