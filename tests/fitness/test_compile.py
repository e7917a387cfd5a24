"""compile_source: what NVRTC gives, where it points, and what the cache may and may not do."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from fitness import compile as compile_module
from fitness.compile import DAMAGED_CACHE, CompileError, compile_source
from fitness.compiler import cache, nvrtc
from fitness.devices.device import Compiled
from fitness.outcome import Finding

GOOD = """/*---
about = "scales"
---*/
extern "C" __global__ void __launch_bounds__(128) scale(const float* x, float* y, int n, float alpha) {
  __shared__ float t[64];
  int i = blockIdx.x * TILE + threadIdx.x;
  t[threadIdx.x % 64] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = alpha * t[threadIdx.x % 64];
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def built(source: str, *defines: str, use_cache: bool = True) -> Compiled:
    result = compile_source(source, defines=defines, use_cache=use_cache)
    assert isinstance(result, Compiled), result
    return result


def refused(source: str, *flags: str) -> tuple[Finding, ...]:
    result = compile_source(source, flags=flags)
    assert isinstance(result, CompileError)
    return result.findings


def test_signature_resources_and_own_lines() -> None:
    compiled = built(GOOD, "-DTILE=64")
    entry = compiled.entries["scale"]
    assert [(p.type, p.bytes) for p in entry.parameters] == [("u64", 8), ("u64", 8), ("u32", 4), ("f32", 4)]
    assert entry.max_threads == 128
    assert entry.shared_bytes == 256
    assert 0 < entry.registers < 64
    assert ".loc\t1 7 " in compiled.ptx or ".loc 1 7 " in compiled.ptx  # the line that loads x
    assert '"candidate.cu"' in compiled.ptx
    assert str(Path.cwd()) not in compiled.ptx
    assert compiled.cubin.startswith(b"\x7fELF")


def test_prelude_and_toolkit_headers_compile_together() -> None:
    source = """#include <evo.cuh>
#include <mma.h>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>
extern "C" __global__ void f(float* y, int64_t n) { y[0] = n > 0 ? INFINITY : float(evo::cdiv(7, 2)); }
"""
    assert "f" in built(source).entries


def test_code_hash_ignores_comments_and_sees_code_and_constants() -> None:
    table = GOOD.replace("/*---", "__constant__ float c[2] = {1, 2};\n/*---").replace("alpha * t", "c[n & 1] * t")
    plain = built(GOOD, "-DTILE=64")
    commented = built("// another first line\n" + GOOD.replace("scales", "scales, said otherwise"), "-DTILE=64")
    assert plain.code_hash == commented.code_hash
    assert plain.ptx != commented.ptx  # its .loc lines moved
    assert plain.code_hash != built(GOOD, "-DTILE=32").code_hash
    assert built(table, "-DTILE=64").code_hash != built(table.replace("{1, 2}", "{1, 3}"), "-DTILE=64").code_hash


def test_errors_name_the_line_and_the_nearest_real_name() -> None:
    source = GOOD.replace("__syncthreads", "__synchthreads").replace("TILE", "64")
    (finding,) = refused(source)
    assert (finding.kind, finding.line) == ("unknown_api", 8)
    assert "__syncthreads" in finding.suggestion


def test_own_undefined_variable_is_no_api() -> None:
    (finding,) = refused(GOOD)
    assert (finding.kind, finding.line, finding.suggestion) == ("compile_error", 6, "")
    assert "TILE" in finding.message


def test_ptxas_errors_point_at_the_inline_assembly() -> None:
    source = """
extern "C" __global__ void f(float* y) {
  asm volatile("st.global.f23 [%0], %1;" :: "l"(y), "f"(1.0f));
}
"""
    first, *_ = refused(source)
    assert (first.kind, first.line, first.suggestion) == ("unknown_api", 3, "did you mean .f32?")


def test_warnings_are_kept_on_success() -> None:
    compiled = built(GOOD.replace("int i", "int unused; int i"), "-DTILE=64")
    (warning,) = compiled.warnings
    assert (warning.severity, warning.line) == ("warning", 6)
    assert "unused" in warning.message


def test_too_much_static_shared_memory_is_an_error() -> None:
    (finding,) = refused(GOOD.replace("t[64]", "t[100000]").replace("TILE", "64"))
    assert finding.kind == "shared_memory"


def test_large_module_variables_are_refused() -> None:
    source = """__device__ float hidden[1 << 16];
extern "C" __global__ void f(float* y) { hidden[threadIdx.x] += 1; y[0] = hidden[7]; }
"""
    (finding,) = refused(source)
    assert finding.kind == "module_memory"


def test_an_unknown_flag_is_a_finding() -> None:
    assert refused('extern "C" __global__ void f() {}', "--no-such-flag")


def test_forbidden_include_never_reaches_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_arguments: object) -> nvrtc.RawBuild:
        raise AssertionError("NVRTC was called")

    monkeypatch.setattr(nvrtc, "build", never)
    (finding,) = refused('#include "/etc/passwd"\n' + GOOD)
    assert (finding.kind, finding.line) == ("forbidden_include", 1)


# -- the cache --------------------------------------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    real = nvrtc.build

    def build(source: str, options: tuple[str, ...], headers: dict[str, str]) -> nvrtc.RawBuild:
        calls.append(source)
        return real(source, options, headers)

    monkeypatch.setattr(nvrtc, "build", build)
    return calls


def test_second_time_comes_from_the_cache_and_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    first, second = built(GOOD, "-DTILE=64"), built(GOOD, "-DTILE=64")
    assert len(calls) == 1
    assert (first.ptx, first.cubin, first.code_hash, first.entries, first.warnings) == (
        second.ptx, second.cubin, second.code_hash, second.entries, second.warnings,
    )  # fmt: skip
    assert refused(GOOD) == refused(GOOD)
    assert len(calls) == 2


def test_everything_that_matters_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    built(GOOD, "-DTILE=64")
    built(GOOD, "-DTILE=32")
    compile_source(GOOD, defines=("-DTILE=64",), arch="sm_80")
    compile_source(GOOD, defines=("-DTILE=64",), flags=("--use_fast_math",))
    built(GOOD + "// end\n", "-DTILE=64")
    monkeypatch.setattr(compile_module, "preludes", lambda: {"evo.cuh": "// another prelude\n"})
    built(GOOD, "-DTILE=64")
    assert len(calls) == 6


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_entry_is_compiled_again_and_replaced(
    damage: bytes | None, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = built(GOOD, "-DTILE=64")
    (path,) = own_cache.rglob("*.json")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20] if damage is None else damage)
    calls = counted(monkeypatch)
    again = built(GOOD, "-DTILE=64")
    assert again.cubin == expected.cubin
    assert len(calls) == 1
    assert path.read_bytes() == whole
    (note,) = [finding for finding in again.warnings if finding.kind == DAMAGED_CACHE]
    assert str(path) in note.message
    assert note.severity == "note"
    assert built(GOOD, "-DTILE=64").warnings == expected.warnings  # said once


def test_a_damaged_entry_of_a_failure_is_said_too(own_cache: Path) -> None:
    broken = "__global__ void f() { nonsense }"
    first = compile_source(broken)
    (path,) = own_cache.rglob("*.json")
    path.write_bytes(b"junk")
    again = compile_source(broken)
    assert isinstance(first, CompileError)
    assert isinstance(again, CompileError)
    assert again.findings[:-1] == first.findings
    assert again.findings[-1].kind == DAMAGED_CACHE


def _compile_in_child(source: str) -> str:
    return built(source, "-DTILE=64").code_hash


def test_processes_share_it_safely(own_cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        hashes = pool.map(_compile_in_child, [GOOD] * 4, chunksize=1)
    assert len(set(hashes)) == 1
    assert [path.suffix for path in own_cache.rglob("*") if path.is_file()] == [".json"]


def test_an_unusable_folder_says_how_to_move_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("EVO_CACHE", str(blocked))
    with pytest.raises(cache.CacheError, match="EVO_CACHE"):
        compile_source(GOOD, defines=("-DTILE=64",))
    with pytest.raises(cache.CacheError, match="EVO_CACHE"):
        cache.check_writable()
