"""NVIDIA's command-line tools on one kernel: found, and run on a pickled program in a process of their own."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fitness.devices.device import Inputs, Program
from fitness.gpu import Gpu

_TIMEOUT_S: Final = 120.0
_FOLDERS: Final = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")


class ToolError(RuntimeError):
    """A tool is missing or failed; the message says what to do."""


def find_tool(name: str) -> str | None:
    """Path of a tool on PATH, in CUDA_HOME or in the usual folders; None if it is nowhere."""
    home = os.environ.get("CUDA_HOME", "")
    folders = [f"{home}/bin"] if home else []
    versions = sorted(str(path.parent) for path in Path(_FOLDERS[1]).glob(f"*/{name}"))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join([*folders, *_FOLDERS, *reversed(versions)]))


def run_under(tool: str, options: list[str], program: Program, inputs: Inputs, gpu: Gpu) -> str:
    """What a tool prints about one run of a program, stdout and stderr together.

    Args:
        tool: "ncu" or "compute-sanitizer".
        options: of the tool.
        program: what is run, once, each buffer in an allocation of its exact size.
        inputs: its data.
        gpu: the card.

    Raises:
        ToolError: the tool is missing, or gives nothing.
    """
    path = find_tool(tool)
    if path is None:
        raise ToolError(f"{tool} is not installed; it comes with the CUDA toolkit (evo doctor says what is missing)")
    with job_command("fitness.devices.cuda.replay", program, inputs, gpu) as (command, environment):
        try:
            done = subprocess.run(
                [path, *options, *command],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"{tool} took more than {_TIMEOUT_S:g} s; use a smaller shape") from None
    return done.stdout + done.stderr


@contextmanager
def job_command(module: str, program: Program, inputs: Inputs, gpu: Gpu) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Command and environment that run a module of ours on a pickled program, its data and the card."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.pickle"
        job.write_bytes(pickle.dumps((program, inputs, gpu)))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(part) for part in sys.path)}
        yield [sys.executable, "-m", module, str(job)], environment
