"""What this machine can do for evo, what else it could, and the exact command to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from evo.words import counted
from fitness.devices.cuda.available import cards, described, missing
from fitness.devices.cuda.tools import find_tool

State = Literal["ok", "absent", "broken"]
_PROBE_S: Final = 60.0
_TOOLKIT: Final = "install the CUDA toolkit 13 and put its bin folder on PATH"


@dataclass(frozen=True)
class Check:
    """One thing looked at.

    Attributes:
        name: what; state: "ok", "absent" (evo runs without it) or "broken"; said: version, or what is wrong.
        fix: the command to get it; empty where all is well.
        needed: evo does not run without it.
    """

    name: str
    state: State
    said: str
    fix: str = ""
    needed: bool = False


def examine(*, llm: bool = False) -> list[Check]:
    """Look at everything, in the order a run would need it. `llm` also asks the endpoint for its models."""
    return [
        Check("python", "ok", ".".join(str(part) for part in sys.version_info[:3]), needed=True),
        _nvrtc(),
        _cache(),
        *_gpu(),
        _package("torch", "PyTorch, for vendor baselines", "pip install torch"),
        _cusparselt(),
        _package("ray", "Ray, for several machines", "pip install 'evo-kernels[ray]'"),
        *(_tool(name, version) for name, version in _TOOLS.items()),
        _endpoint(ask=llm),
    ]


def _nvrtc() -> Check:
    from fitness.compiler.nvrtc import NvrtcError, include_folder, version

    fix = "pip install --force-reinstall evo-kernels"
    try:
        folder = include_folder()
        return Check("nvrtc", "ok", f"{version()}, headers in {folder}", needed=True)
    except (NvrtcError, ImportError, RuntimeError) as error:
        return Check("nvrtc", "broken", str(error), fix, needed=True)


def _cache() -> Check:
    from fitness.compiler import cache

    fix = "export EVO_CACHE=FOLDER, one you can write to"
    try:
        cache.check_writable()
        held = cache.size()
    except cache.CacheError as error:
        return Check("compile cache", "broken", str(error), fix, needed=True)
    said = (
        f"{cache.folder()}: {held.entries} entries, {held.bytes / 2**20:.1f} MiB of at most {cache.LIMIT_BYTES >> 20}"
    )
    return Check("compile cache", "ok", said, needed=True)


def _gpu() -> list[Check]:
    found = _package("pycuda", "PyCUDA", "pip install 'evo-kernels[gpu]'")
    why = missing()
    if why:
        said, _, fix = why.rpartition("; ")
        return [found, Check("card", "absent", f"none that can be used (optional): {said}", fix)]
    checks = [found]
    for card in cards():
        sheet = described(card)
        said = f"{card.index}: {card.name}, sm_{card.capability[0]}{card.capability[1]}, {card.memory_bytes >> 30} GiB"
        fix = "" if sheet else "describe it in fitness/gpus/NAME.toml"
        state: State = "ok" if sheet else "absent"
        checks.append(Check("card", state, said + ("" if sheet else ", no data sheet"), fix))
    checks.append(_package("pynvml", "NVML, to watch the clock", "pip install nvidia-ml-py", "nvidia-ml-py"))
    return checks


def _package(module: str, what: str, fix: str, distribution: str = "") -> Check:
    if importlib.util.find_spec(module) is None:
        return Check(module, "absent", f"not installed (optional): {what}", fix)
    return Check(module, "ok", importlib.metadata.version(distribution or module))


def _cusparselt() -> Check:
    if importlib.util.find_spec("torch") is None:
        return Check("cusparselt", "absent", "not installed (optional): comes with PyTorch", "pip install torch")
    code = "import torch; print(torch.backends.cusparselt.version() or '')"
    said, worked = _output([sys.executable, "-c", code])
    if worked and said:
        return Check("cusparselt", "ok", said)
    said = "none that can be used (optional): this PyTorch has none, or sees no card"
    return Check("cusparselt", "absent", said, "install a CUDA build of PyTorch")


_TOOLS: Final = {"nvcc": "--version", "ncu": "--version", "compute-sanitizer": "--version"}
_FOR: Final = {
    "nvcc": "another compiler than NVRTC",
    "ncu": "profiles on a card",
    "compute-sanitizer": "checks of memory on a card",
}


def _tool(name: str, option: str) -> Check:
    path = find_tool(name)
    if path is None:
        return Check(name, "absent", f"not installed (optional): {_FOR[name]}; it is not on PATH", _TOOLKIT)
    said, worked = _output([path, option])
    last = said.splitlines()[-1].strip() if said else ""
    return Check(name, "ok", f"{path} ({last})") if worked else Check(name, "broken", last, _TOOLKIT)


def _output(command: list[str]) -> tuple[str, bool]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), False
    return (done.stdout or done.stderr).strip(), done.returncode == 0


def _endpoint(*, ask: bool, models: Callable[[], list[str]] | None = None) -> Check:
    names = [name for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL") if os.environ.get(name)]
    if not names:
        said = "no endpoint (optional): the built-in operators are used alone"
        return Check("model", "absent", said, "export OPENAI_API_KEY=...")
    if not ask:
        return Check("model", "ok", f"{' and '.join(names)} set; --llm asks it")
    import openai

    try:
        key = os.environ.get("OPENAI_API_KEY") or "none"  # a server of one's own asks for none
        client = openai.OpenAI(api_key=key, timeout=20.0, max_retries=0)
        found = models() if models else [model.id for model in client.models.list()]
    except openai.OpenAIError as error:
        return Check("model", "broken", f"{type(error).__name__}: {error}"[:200], "check the key and OPENAI_BASE_URL")
    return Check("model", "ok", f"answers; {counted(len(found), 'models')}: {', '.join(sorted(found)[:5])}")
