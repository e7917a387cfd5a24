"""The call of NVRTC: what each way of failing gives."""

from __future__ import annotations

import re

import pytest

from fitness.compiler import nvrtc

KERNEL = 'extern "C" __global__ void f(float* y) { y[0] = 1; }'


def test_one_compilation_gives_ptx_cubin_and_report() -> None:
    raw = nvrtc.build(KERNEL, ["-arch=sm_80", "--ptxas-options=-v"], {})
    assert raw.ok
    assert ".entry f" in raw.ptx
    assert raw.cubin.startswith(b"\x7fELF")
    assert "Used" in raw.log


def test_errors_are_in_the_log_not_raised() -> None:
    raw = nvrtc.build("no kernel", ["-arch=sm_80"], {})
    assert not raw.ok
    assert f"{nvrtc.CANDIDATE}(1): error" in raw.log
    assert not nvrtc.build(KERNEL, ["-arch=sm_80", "--no-such-option"], {}).ok


def test_headers_are_found_by_name_and_in_the_wheels() -> None:
    source = '#include "mine.h"\n#include <cuda_fp16.h>\n' + KERNEL.replace("1", "MINE")
    options = ["-arch=sm_80", f"-I{nvrtc.include_folder()}"]
    assert nvrtc.build(source, options, {"mine.h": "#define MINE 2\n"}).ok
    assert not nvrtc.build(source, options, {}).ok


def test_exhausted_memory_is_no_error_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_text", lambda *_: b"/candidate.cu(1): catastrophic error: out of memory\n")
    with pytest.raises(MemoryError):
        nvrtc.build(KERNEL, ["-arch=sm_80"], {})


def test_version_and_missing_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"\d+\.\d+", nvrtc.version())
    nvrtc.include_folder.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(nvrtc.NvrtcError, match="pip install"):
        nvrtc.include_folder()
    nvrtc.include_folder.cache_clear()
