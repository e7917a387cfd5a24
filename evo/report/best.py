"""The best kernel as files: `best.cu`, which is a kernel file again, and the PTX it compiles to."""

from __future__ import annotations

import re
from pathlib import Path

from fitness.compile import CompileError, compile_source
from fitness.kernel import Kernel, KernelError, parse_kernel


def standalone_source(kernel: Kernel, note: str) -> str:
    """The kernel's source with its chosen params as the header's defaults, and `note` as a last comment.

    Where a default cannot be rewritten (a header laid out in an unusual way) the source stays as it is; the
    last comment names the params in any case.
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
    return f"{source.rstrip()}\n\n// {note}\n// params: {chosen}\n"


def _has_defaults(source: str, kernel: Kernel) -> bool:
    """True if `source` parses to the params of `kernel`."""
    try:
        return dict(parse_kernel(source).params) == dict(kernel.params)
    except KernelError:
        return False


def write_best(kernel: Kernel, arch: str, folder: Path, note: str) -> list[Path]:
    """Write `best.cu` and `best.ptx` (from the compiler's cache) into `folder`.

    Returns:
        The files written.

    Raises:
        OSError: the folder cannot be written.
        RuntimeError: a kernel that was judged valid no longer compiles.
    """
    source_path, ptx_path = folder / "best.cu", folder / "best.ptx"
    source_path.write_text(standalone_source(kernel, note), encoding="utf-8")
    compiled = compile_source(kernel.source, defines=kernel.defines, flags=kernel.header.options, arch=arch)
    if isinstance(compiled, CompileError):
        raise RuntimeError(f"the best kernel no longer compiles: {compiled.findings[0].message}")
    ptx_path.write_text(compiled.ptx, encoding="utf-8")
    return [source_path, ptx_path]
