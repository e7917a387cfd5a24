"""What the engine is compared with: one torch C++ extension built around a kernel, as a candidate would need it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fitness
from fitness.kernel import Kernel
from fitness.task import Task

_BINDING = """#include <torch/extension.h>
#include "candidate.cu"

// The entries take raw pointers; a launch through torch needs this much glue at least.
torch::Tensor run(torch::Tensor w, torch::Tensor x, torch::Tensor y) {
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&ENTRY));
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
_SCRIPT = """
import json, sys, time
from torch.utils.cpp_extension import load
arguments = json.loads(sys.argv[1])
began = time.perf_counter()
load(name="candidate", sources=arguments["sources"], extra_cuda_cflags=arguments["flags"],
     build_directory=arguments["folder"])
print(json.dumps({"seconds": time.perf_counter() - began}))
"""


class Build:
    """`torch.utils.cpp_extension.load` of a kernel with nvcc, in a process and an empty folder of its own.

    Args:
        kernel: whose source is built, whole, with its params and the task's macros.
        task: gives the macros.
    """

    def __init__(self, kernel: Kernel, task: Task) -> None:
        self.kernel, self.task = kernel, task
        self._folder = tempfile.TemporaryDirectory(prefix="evo-extension-")
        self._process: subprocess.Popen[str] | None = None
        self._began = 0.0

    def __enter__(self) -> Build:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def arguments(self) -> dict[str, Any]:
        """What is compiled, and how; writes the sources."""
        folder = Path(self._folder.name)
        entry = self.kernel.header.launches[0].kernel
        (folder / "candidate.cu").write_text(self.kernel.source, encoding="utf-8")
        (folder / "binding.cu").write_text(_BINDING.replace("ENTRY", entry), encoding="utf-8")
        include = Path(fitness.__file__).parent / "include"
        flags = [*self.task.defines, *self.kernel.defines, f"-I{include}", "-std=c++17",
                 "-gencode=arch=compute_90a,code=sm_90a", *self.kernel.header.options]  # fmt: skip
        return {"sources": [str(folder / "binding.cu")], "flags": flags, "folder": str(folder)}

    def start(self) -> None:
        """Begin building; returns at once."""
        self._began = time.perf_counter()
        command = [sys.executable, "-c", _SCRIPT, json.dumps(self.arguments())]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait(self, timeout_s: float) -> dict[str, Any]:
        """`seconds` of `load` alone, `whole_s` with the interpreter's and torch's start; `why` where it failed."""
        assert self._process is not None, "start it first"
        try:
            said, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return {"why": f"not built within {time.perf_counter() - self._began:.0f} s"}
        whole_s = time.perf_counter() - self._began
        last = said.strip().splitlines()[-1] if said.strip() else ""
        if self._process.returncode != 0 or not last.startswith("{"):
            return {"why": said[-2000:], "whole_s": whole_s}
        return {**json.loads(last), "whole_s": whole_s}
