"""Compiles a candidate with NVRTC: PTX, cubin, resources and diagnostics from one compilation, cached.

Works on any machine: NVRTC comes from PyPI wheels and needs neither a driver nor a CUDA toolkit. Where one is
installed, nvcc can be asked for instead. A candidate sees its params as `-DNAME=VALUE`, the toolkit headers of the
allow-list and our own in `include/`.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal

from fitness.compiler import cache, diagnostics, nvcc, nvrtc, ptx
from fitness.compiler.cubin import code_hash, module_bytes
from fitness.compiler.includes import PRELUDES, include_findings
from fitness.devices.device import Compiled, Entry
from fitness.outcome import Finding, Gate

CompilerName = Literal["nvrtc", "nvcc"]
"""What an experiment may name as `device.compiler`."""

_INCLUDE = Path(str(resources.files("fitness").joinpath("include")))

#: Module-level `__device__`/`__constant__` variables a candidate may have, bytes. Constant tables and the
#: few words CUDA's own headers bring fit; a hidden copy of an operand does not.
MAXIMUM_MODULE_BYTES = 64 * 1024

#: Kind of the note on a candidate whose cached compilation could not be read back.
DAMAGED_CACHE = "damaged_cache_entry"


@dataclass(frozen=True)
class CompileError:
    """NVRTC or ptxas refused the source: what they said, as findings (errors first). Data, not an exception."""

    findings: tuple[Finding, ...]
    seconds: float = 0.0


@functools.cache
def preludes() -> Mapping[str, str]:
    """Our own headers that every candidate may include: file name -> text."""
    return {name: _INCLUDE.joinpath(name).read_text(encoding="utf-8") for name in PRELUDES}


def compile_source(
    source: str,
    *,
    defines: Sequence[str] = (),
    flags: Sequence[str] = (),
    arch: str = "sm_90a",
    compiler: CompilerName = "nvrtc",
    use_cache: bool = True,
) -> Compiled | CompileError:
    """Compile one candidate.

    Args:
        source: CUDA C++ device code; line numbers of findings and of `.loc` count from its first line.
        defines: macro definitions as options, "-DBM=64".
        flags: further compile options of the header's allow-list ("--use_fast_math").
        arch: target with machine code, "sm_90a".
        compiler: "nvrtc", or "nvcc" of an installed CUDA toolkit, through PyCUDA.
        use_cache: read and write the cache in `$EVO_CACHE`.

    Returns:
        The build, or what is wrong with the source. The same for the same arguments, but for `seconds` and a note
        where the cache was damaged.

    Raises:
        fitness.compiler.nvrtc.NvrtcError: the compiler or its headers are missing or broken.
        fitness.compiler.cache.CacheError: the cache folder cannot be read or written.
    """
    started = time.perf_counter()
    refused = include_findings(source, Gate.COMPILE)
    if refused:
        return CompileError(refused)
    name = _key(source, defines, flags, arch, compiler)
    held = cache.load(name) if use_cache else None
    if held is None or isinstance(held, cache.Damaged):
        result = _build(source, (*defines, *flags), arch, compiler)
        if use_cache:
            cache.store(name, result)
    else:
        result = held
    notes = (_damaged(held),) if isinstance(held, cache.Damaged) else ()
    seconds = time.perf_counter() - started
    if isinstance(result, tuple):
        return CompileError((*result, *notes), seconds)
    return replace(result, warnings=(*result.warnings, *notes), seconds=seconds)


def _damaged(entry: cache.Damaged) -> Finding:
    message = f"the entry {entry.path} of the compile cache was damaged: compiled anew and replaced"
    hint = "one may be a killed process or a full disk; many: check the disk"
    return Finding(Gate.COMPILE, DAMAGED_CACHE, message, None, hint, severity="note")


def _key(source: str, defines: Sequence[str], flags: Sequence[str], arch: str, compiler: CompilerName) -> str:
    prelude_hash = hashlib.sha256("\0".join(preludes().values()).encode()).hexdigest()
    made_by = nvrtc.version() if compiler == "nvrtc" else f"nvcc {nvcc.version()}"
    return cache.key(source, "\n".join(defines), "\n".join(flags), arch, made_by, prelude_hash)


def _build(source: str, options: Sequence[str], arch: str, compiler: CompilerName) -> Compiled | tuple[Finding, ...]:
    fixed = (f"-arch={arch}", "-std=c++17", "-lineinfo", "--ptxas-options=-v")
    if compiler == "nvcc":
        folder = nvcc.include_folder()
        raw = nvcc.build(source, (*fixed, *options), _INCLUDE)
    else:
        folder = nvrtc.include_folder()
        raw = nvrtc.build(source, (*fixed, f"-I{folder}", f"-I{folder / 'cccl'}", *options), preludes())
    text = ptx.normalised(raw.ptx, str(folder))
    found = diagnostics.findings(raw.log, text)
    if not raw.ok:
        return found or (Finding(Gate.COMPILE, "compile_error", raw.log.strip()[:500] or "NVRTC gave no reason"),)
    problems = _unusable(raw.cubin)
    if problems:
        return problems
    return Compiled(arch, text, raw.cubin, code_hash(raw.cubin), _entries(text, raw.log), found)


def _unusable(cubin: bytes) -> tuple[Finding, ...]:
    held = module_bytes(cubin)
    if held <= MAXIMUM_MODULE_BYTES:
        return ()
    message = f"module-level variables take {held} bytes, more than the {MAXIMUM_MODULE_BYTES} allowed"
    return (Finding(Gate.COMPILE, "module_memory", message, None, "use a [[workspace]] buffer instead"),)


def _entries(text: str, log: str) -> dict[str, Entry]:
    used = diagnostics.usage(log)
    entries = {}
    for name, signature in ptx.signatures(text).items():
        resources_of = used.get(name, diagnostics.Usage())
        entries[name] = Entry(
            name=name,
            parameters=signature.parameters,
            registers=resources_of.registers,
            shared_bytes=resources_of.shared_bytes,
            local_bytes=resources_of.local_bytes,
            spill_store_bytes=resources_of.spill_store_bytes,
            spill_load_bytes=resources_of.spill_load_bytes,
            max_threads=signature.max_threads,
            required_block=signature.required_block,
            required_cluster=signature.required_cluster,
        )
    return entries
