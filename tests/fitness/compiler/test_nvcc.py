"""nvcc as the compiler: found, limited, called through PyCUDA; PyCUDA and nvcc are stand-ins where no card is."""

from __future__ import annotations

import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fitness.compile import CompileError, CompilerName, compile_source
from fitness.compiler import nvcc
from fitness.devices.device import Compiled
from fitness.kernel import load_kernel
from fitness.task import Task
from seeds import seed_paths

COMPILERS: tuple[CompilerName, ...] = ("nvrtc", "nvcc")
SPEC: dict[str, Any] = {
    "op": "spmm",
    "pattern": {"kind": "nm", "n": 2, "m": 4},
    "dtype": "float16",
    "shapes": [{"M": 4096, "K": 4096, "N": 16}],
}
SOURCE = 'extern "C" __global__ void twice(float* y) { y[threadIdx.x] *= 2.0f; }\n'


class RefusedError(Exception):
    """As PyCUDA's: what nvcc printed."""

    def __init__(self, stdout: str, stderr: str) -> None:
        super().__init__("nvcc compilation failed")
        self.stdout, self.stderr = stdout, stderr


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an nvcc that knows its version."""
    program = tmp_path / "cuda" / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n", encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    nvcc.version.cache_clear()
    return program


def pycuda(monkeypatch: pytest.MonkeyPatch, compiles: Callable[..., bytes]) -> None:
    package, compiler, driver = (types.ModuleType(name) for name in ("pycuda", "pycuda.compiler", "pycuda.driver"))
    compiler.compile = compiles  # type: ignore[attr-defined]
    driver.CompileError = RefusedError  # type: ignore[attr-defined]
    for module in (package, compiler, driver):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_both_targets_are_built_with_our_headers_and_the_log_is_kept(
    toolkit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []

    def compiles(source: str, **given: Any) -> bytes:
        calls.append(given | {"source": source})
        script = Path(given["nvcc"]).read_text(encoding="utf-8")
        assert f"ulimit -t {nvcc.CPU_S}" in script
        assert str(toolkit) in script
        if given["target"] == "cubin":
            warnings.warn(
                "The CUDA compiler succeeded, but said the following:\nptxas info : Used 8 registers", stacklevel=1
            )
        return b"PTX" if given["target"] == "ptx" else b"CUBIN"

    pycuda(monkeypatch, compiles)
    options = ("-arch=sm_90a", "-lineinfo", "-DBM=64")
    raw = nvcc.build(SOURCE, options, Path("/headers"))
    assert (raw.ok, raw.ptx, raw.cubin, raw.log) == (True, "PTX", b"CUBIN", "ptxas info : Used 8 registers")
    assert [call["target"] for call in calls] == ["ptx", "cubin"]
    for call in calls:
        assert call["arch"] == "sm_90a"
        assert call["options"] == ["-lineinfo", "-DBM=64", "-I/headers"]
        assert call["no_extern_c"]
        assert call["source"].startswith('#line 1 "/candidate.cu"\n')
        assert not Path(call["nvcc"]).exists(), "the wrapper does not outlive the call"


def test_a_refusal_is_a_finding_with_the_candidates_line(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    def refuses(source: str, **given: Any) -> bytes:  # noqa: ARG001
        raise RefusedError("", '/candidate.cu(3): error: identifier "x" is undefined\n')

    pycuda(monkeypatch, refuses)
    result = compile_source(SOURCE, compiler="nvcc", use_cache=False)
    assert isinstance(result, CompileError)
    assert result.findings[0].line == 3
    assert '"x" is undefined' in result.findings[0].message


def test_a_compilation_that_is_cut_off_says_so(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    def dies(source: str, **given: Any) -> bytes:  # noqa: ARG001
        raise RefusedError("", "nvcc error   : 'cicc' died due to signal 24 (CPU time limit exceeded)")

    pycuda(monkeypatch, dies)
    result = compile_source(SOURCE, compiler="nvcc", use_cache=False)
    assert isinstance(result, CompileError)
    assert f"more than {nvcc.CPU_S} CPU seconds" in result.findings[0].message


def test_the_wrapper_limits_and_passes_its_arguments_on(tmp_path: Path) -> None:
    program = tmp_path / "nvcc it is"
    program.write_text('#!/bin/sh\nulimit -t\nprintf "%s|" "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    with nvcc._limited(str(program)) as command:
        done = subprocess.run([command, "-I/a b", "--ptx"], capture_output=True, text=True, check=True)
    assert done.stdout == f"{nvcc.CPU_S}\n-I/a b|--ptx|"


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find_tool", lambda _name: None)
    nvcc.version.cache_clear()
    with pytest.raises(nvcc.NvccError, match="nvcc is not installed"):
        compile_source(SOURCE, compiler="nvcc", use_cache=False)
    monkeypatch.setattr(nvcc, "find_tool", lambda _name: str(tmp_path / "nvcc"))
    monkeypatch.setitem(sys.modules, "pycuda.compiler", None)
    with pytest.raises(nvcc.NvccError, match="goes through PyCUDA"):
        nvcc.build(SOURCE, ("-arch=sm_90a",), tmp_path)


def test_each_compiler_has_cache_entries_of_its_own(
    toolkit: Path,  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path / "cache"))
    built = compile_source(SOURCE)
    assert isinstance(built, Compiled)

    def refuses(source: str, **given: Any) -> bytes:  # noqa: ARG001
        raise RefusedError("", "/candidate.cu(1): error: not mine\n")

    pycuda(monkeypatch, refuses)
    assert isinstance(compile_source(SOURCE, compiler="nvcc"), CompileError)
    assert isinstance(compile_source(SOURCE), Compiled)


@pytest.mark.gpu
def test_a_seed_built_by_nvcc_has_the_interface_nvrtc_gives_it() -> None:
    (path,) = seed_paths("spmm/nm24_mma_sp")
    kernel, task = load_kernel(path), Task.from_spec(SPEC)
    found = []
    for compiler in COMPILERS:
        defines = (*task.defines, *kernel.defines)
        built = compile_source(kernel.source, defines=defines, compiler=compiler, use_cache=False)
        assert isinstance(built, Compiled), built
        found.append(built.entries)
    assert {name: entry.parameters for name, entry in found[0].items()} == {
        name: entry.parameters for name, entry in found[1].items()
    }
    assert all(entry.registers > 0 for entry in found[1].values())
