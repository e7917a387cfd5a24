"""The one place that calls NVRTC (cuda.bindings.nvrtc from PyPI wheels; needs no driver and no toolkit).

One program gives everything: with `-arch=sm_XX` NVRTC runs ptxas itself, so PTX, cubin and the resource
report of `--ptxas-options=-v` come from a single compilation. `-lineinfo` leaves `.text` as it is without it
(measured: identical on all kernels tried), so nothing is compiled twice.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Name under which NVRTC knows the candidate; absolute, so that NVRTC puts no working folder before it.
CANDIDATE = "/candidate.cu"


class NvrtcError(RuntimeError):
    """NVRTC itself failed (not the candidate): library or headers missing, internal error."""


@dataclass(frozen=True)
class RawBuild:
    """What NVRTC gave: `ok`, its log, and PTX/cubin (empty where that stage was not reached)."""

    ok: bool
    log: str
    ptx: str
    cubin: bytes


@functools.cache
def include_folder() -> Path:
    """The `include` folder of the NVIDIA wheels.

    Raises:
        NvrtcError: the runtime headers are not installed.
    """
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(root) / "cu13" / "include"
        if (folder / "cuda_fp16.h").is_file():
            return folder
    raise NvrtcError("the CUDA headers are missing; pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl")


@functools.cache
def version() -> str:
    """Version of the NVRTC library in use, for example "13.5"."""
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if status.value != 0:
        raise NvrtcError(f"nvrtcVersion: {status.name}")
    return f"{major}.{minor}"


def build(source: str, options: Sequence[str], headers: Mapping[str, str]) -> RawBuild:
    """Compile one program. `headers`: name -> text of the headers given by name rather than by folder.

    Raises:
        NvrtcError: any failure that is not the candidate's.
        MemoryError: NVRTC ran out of memory.
    """
    from cuda.bindings import nvrtc

    names = [name.encode() for name in headers]
    texts = [text.encode() for text in headers.values()]
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), CANDIDATE.encode(), len(names), texts, names)
    _expect(status, "nvrtcCreateProgram")
    try:
        encoded = [option.encode() for option in options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace")
        log = log.replace("\0", "\n")  # ptxas errors follow its report behind a NUL
        # The front end reports exhaustion as an error of the source; it says nothing about the source, only
        # about this process, so it must never be cached.
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY or "catastrophic error: out of memory" in log:
            raise MemoryError("NVRTC ran out of memory")
        failed = status == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION
        if not failed and status == nvrtc.nvrtcResult.NVRTC_ERROR_INVALID_OPTION:
            return RawBuild(False, log, "", b"")
        if not failed:
            _expect(status, "nvrtcCompileProgram", log)
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program).rstrip(b"\0").decode()
        cubin = _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return RawBuild(not failed, log, ptx, cubin)


def _expect(status: Any, what: str, log: str = "") -> None:
    if status.value != 0:
        raise NvrtcError(f"{what}: {status.name} {log.strip()}".strip())


def _text(size_of: Any, read: Any, program: Any) -> bytes:
    status, size = size_of(program)
    _expect(status, size_of.__name__)
    if size == 0:
        return b""
    buffer = bytes(size)
    (status,) = read(program, buffer)
    _expect(status, read.__name__)
    return buffer
