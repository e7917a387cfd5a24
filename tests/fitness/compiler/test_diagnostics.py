"""Logs of NVRTC and ptxas as they really look, turned into findings and figures."""

from __future__ import annotations

import pytest

from fitness.compiler.diagnostics import MAXIMUM_FINDINGS, Usage, api_names, findings, nearest, usage

LOG = """/candidate.cu(9): warning #177-D: variable "unused" was declared but never referenced
    int unused;
        ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

/candidate.cu(12): error: identifier "__shfl_dwn_sync" is undefined
/candidate.cu(13): error: identifier "tile" is undefined
evo.cuh(50): error: no instance of function template matches
          detected during instantiation of "void f<T>()" at line 33 of /candidate.cu

3 errors detected in the compilation of "/candidate.cu".
"""

REPORT = """ptxas info    : 4 bytes gmem
ptxas info    : Compiling entry function 'spmm' for 'sm_90a'
ptxas info    : Function properties for spmm
ptxas         .     800 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 94 registers, used 1 barriers, 256 bytes smem, 8 bytes cumulative stack size
ptxas info    : Compile time = 31.325 ms
ptxas info    : Compiling entry function 'reduce' for 'sm_90a'
ptxas info    : Function properties for helper
ptxas         .     96 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for reduce
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, used 0 barriers
"""


def test_errors_come_first_with_lines_and_names() -> None:
    found = findings(LOG)
    assert [(item.kind, item.line, item.severity) for item in found] == [
        ("unknown_api", 12, "error"),
        ("compile_error", 13, "error"),
        ("compile_error", 33, "error"),
        ("compiler_warning", 9, "warning"),
    ]
    assert found[0].suggestion == "did you mean __shfl_down_sync?"
    assert "evo.cuh, line 50" in found[2].message


def test_an_abort_is_told_only_where_nothing_better_is() -> None:
    abort = "ptxas fatal   : Ptx assembly aborted due to errors\n"
    assert [item.kind for item in findings(abort)] == ["ptxas_aborted"]
    found = findings("ptxas application ptx input, line 29; error   : Unknown modifier '.snc'\n" + abort)
    assert [(item.kind, item.suggestion) for item in found] == [("unknown_api", "did you mean .sync?")]


def test_a_flood_is_cut_and_repeats_are_told_once() -> None:
    flood = "".join(f"/candidate.cu({line}): error: expected a declaration\n" for line in range(1, 500))
    assert len(findings(flood)) == MAXIMUM_FINDINGS
    assert len(findings("/candidate.cu(3): error: no\n" * 5)) == 1


def test_resources_by_entry() -> None:
    assert usage(REPORT) == {"spmm": Usage(94, 256, 800, 16, 24), "reduce": Usage(20, 0, 0, 0, 0)}


@pytest.mark.parametrize(
    ("wrong", "real"),
    [
        ("__shfl_xor_synch", "__shfl_xor_sync"),
        ("__half2flaot", "__half2float"),
        ("atomicAd", "atomicAdd"),
        ("__hfma_2", "__hfma2"),
        ("load_matrix_synk", "load_matrix_sync"),
        ("my_own_helper_function", None),
    ],
)
def test_nearest_real_name(wrong: str, real: str | None) -> None:
    assert nearest(wrong) == real


def test_the_list_holds_what_kernels_use() -> None:
    assert {"__syncthreads", "__ldg", "__hfma2", "mma_sync", "cp_async16", "mma.sp", ".m16n8k32"} <= set(api_names())
    assert not any(name.startswith("#") for name in api_names())
