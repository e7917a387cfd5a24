"""nvcc through `pycuda.compiler`, the alternative to NVRTC: what a user's own build would give.

It needs a CUDA toolkit, a host compiler and PyCUDA, is several times slower (the source is compiled once for the PTX
and once for the cubin) and sees the toolkit's headers instead of those of the wheels. Everything after is the same.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fitness.compiler.nvrtc import CANDIDATE, NvrtcError, RawBuild
from fitness.devices.cuda.tools import find_tool

CPU_S: Final = 60
"""CPU seconds of each of nvcc's processes; a compilation that takes more fails."""

_RELEASE: Final = re.compile(r"release [\d.]+, V([\d.]+)")
_KILLED: Final = re.compile(r"died due to signal|CPU time limit|Killed")


class NvccError(NvrtcError):
    """nvcc itself failed, not the candidate: it, its host compiler or PyCUDA is missing."""


def _nvcc() -> str:
    path = find_tool("nvcc")
    if path is None:
        raise NvccError('device.compiler = "nvcc": nvcc is not installed; install the CUDA toolkit or use "nvrtc"')
    return path


@functools.cache
def version() -> str:
    """Version of nvcc, for example "13.0.88".

    Raises:
        NvccError: it is missing or says nothing.
    """
    done = subprocess.run([_nvcc(), "--version"], capture_output=True, text=True, check=False, timeout=60)
    match = _RELEASE.search(done.stdout)
    if match is None:
        raise NvccError(f"nvcc --version: {(done.stdout + done.stderr).strip()[:200] or 'no output'}")
    return match[1]


def include_folder() -> Path:
    """The toolkit's own `include` folder."""
    return Path(_nvcc()).resolve().parent.parent / "include"


def build(source: str, options: Sequence[str], headers: Path) -> RawBuild:
    """Compile one program to PTX and cubin.

    Args:
        source: the candidate.
        options: as NVRTC takes them, "-arch=sm_90a" among them.
        headers: folder of the headers a candidate may include besides the toolkit's.

    Raises:
        NvccError: any failure that is not the candidate's.
    """
    try:
        from pycuda.compiler import compile as pycuda_compile
        from pycuda.driver import CompileError
    except ImportError as missing:
        raise NvccError(f'device.compiler = "nvcc" goes through PyCUDA: {missing}') from missing
    placed = f'#line 1 "{CANDIDATE}"\n{source}'
    flags = [*_nvcc_options(options), f"-I{headers}"]
    log, built = "", []
    with _limited(_nvcc()) as command:
        for target in ("ptx", "cubin"):
            # on success PyCUDA hands on what nvcc printed as a warning
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    made = pycuda_compile(
                        placed, nvcc=command, options=flags, no_extern_c=True, arch=_arch(options), cache_dir=False,
                        keep=False, target=target,
                    )  # fmt: skip
                except CompileError as refused:
                    return RawBuild(False, _refusal(refused.stdout, refused.stderr), "", b"")
            built.append(made)
            log = "\n".join(str(warning.message).partition("\n")[2] for warning in said)
    return RawBuild(True, log, built[0].decode(), built[1])


def _nvcc_options(options: Sequence[str]) -> list[str]:
    """NVRTC's options as nvcc spells them; the architecture goes to PyCUDA by itself."""
    return [option for option in options if not option.startswith("-arch=")]


def _arch(options: Sequence[str]) -> str:
    return next(option.removeprefix("-arch=") for option in options if option.startswith("-arch="))


def _refusal(stdout: str, stderr: str) -> str:
    said = f"{stdout}\n{stderr}"
    if _KILLED.search(said):
        return f"error : nvcc took more than {CPU_S} CPU seconds, or was killed\n{said}"
    return said


@contextmanager
def _limited(nvcc: str) -> Iterator[str]:
    """A command that is nvcc with its CPU time limited: PyCUDA waits for it without a limit."""
    with tempfile.TemporaryDirectory(prefix="evo-nvcc-") as folder:
        script = Path(folder) / "nvcc"
        script.write_text(f'#!/bin/sh\nulimit -t {CPU_S}\nexec "{nvcc}" "$@"\n', encoding="utf-8")
        os.chmod(script, 0o700)
        yield str(script)
