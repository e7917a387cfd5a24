"""The best kernel as files: `best.cu`, which is a kernel file again, and the PTX it compiles to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from evo.writing import whole
from fitness.compile import CompileError, compile_source
from fitness.kernel import Kernel, KernelError, parse_kernel
from fitness.task import Task


def standalone_source(kernel: Kernel, note: str, defines: Sequence[str] = ()) -> str:
    """The kernel's source with its chosen params as the header's defaults, and `note` as a last comment.

    Where a default cannot be rewritten (a header laid out in an unusual way) the source stays as it is; the
    last comment names the params in any case, and `defines`, what the task defines, where there are any.
    """
    source = kernel.source
    for name, value in kernel.params.items():
        default = re.compile(
            rf"(^[ \t]*{re.escape(name)}[ \t]*=[ \t]*\{{[^}}\n]*?\bdefault[ \t]*=[ \t]*)-?[0-9_]+", re.M
        )
        source = default.sub(rf"\g<1>{value}", source, count=1)
    if not _has_defaults(source, kernel):
        source = kernel.source
    chosen = ", ".join(f"{name} = {value}" for name, value in kernel.params.items()) or "none"
    compiled_with = f"// compiled with: {' '.join(defines)}\n" if defines else ""
    return f"{source.rstrip()}\n\n// {note}\n// params: {chosen}\n{compiled_with}"


def _has_defaults(source: str, kernel: Kernel) -> bool:
    """True if `source` parses to the params of `kernel`."""
    try:
        return dict(parse_kernel(source).params) == dict(kernel.params)
    except KernelError:
        return False


def write_best(kernel: Kernel, task: Task, arch: str, folder: Path, note: str) -> list[Path]:
    """Write `best.cu` and `best.ptx` (from the compiler's cache) into `folder`.

    What the task defines for `task.cuh` stands in the last lines of `best.cu`.

    Returns:
        The files written.

    Raises:
        OSError: the folder cannot be written.
        RuntimeError: a kernel that was judged valid no longer compiles.
    """
    source_path, ptx_path = folder / "best.cu", folder / "best.ptx"
    with whole(source_path) as unfinished:
        unfinished.write_text(standalone_source(kernel, note, task.defines), encoding="utf-8")
    defines = (*task.defines, *kernel.defines)
    compiled = compile_source(kernel.source, defines=defines, flags=kernel.header.options, arch=arch)
    if isinstance(compiled, CompileError):
        raise RuntimeError(f"the best kernel no longer compiles: {compiled.findings[0].message}")
    with whole(ptx_path) as unfinished:
        unfinished.write_text(compiled.ptx, encoding="utf-8")
    return [source_path, ptx_path]
