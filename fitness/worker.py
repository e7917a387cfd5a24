"""Isolation: candidates are compiled and run in long-lived worker processes, never in the engine's own.

A worker is a spawned process in its own session, with a scrubbed environment (no keys), an address-space
limit and one thread per numerical library. It takes requests and gives results through a private pipe;
its stdout goes nowhere. It tells the parent whenever it enters another gate, so that the parent, which
alone watches the clock, knows what a worker it has to kill was doing. A worker whose parent is gone ends
itself, however the parent died.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from fitness.compile import CompilerName
from fitness.compiler.cache import CacheError
from fitness.compiler.nvrtc import NvrtcError
from fitness.devices import open_device
from fitness.devices.device import Device, Perishable, Shareable
from fitness.gpu import load
from fitness.kernel import Kernel
from fitness.outcome import Gate, Outcome
from fitness.task import Task
from fitness.threads import ONE_THREAD

#: Variables a worker may see; everything else, API keys above all, stays with the parent.
PASSED_ENVIRONMENT = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "EVO_CACHE", "XDG_CACHE_HOME", "LD_LIBRARY_PATH",
    "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
_START = "import sys; from fitness.worker import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class DeviceSpec:
    """Which device a worker opens: `kind` as in `fitness.devices.DEVICES`, and the card by name ("H200").

    `visible`: CUDA_VISIBLE_DEVICES of the worker, which so meets one card of several; empty: as the parent has it.
    `lock`: a file whose lock the workers of one card pass round; empty: the card is the worker's own.
    `compiler`: what candidates are compiled with.
    """

    kind: str
    gpu: str
    visible: str = ""
    lock: str = ""
    compiler: CompilerName = "nvrtc"


@dataclass(frozen=True)
class CandidateLimits:
    """What one candidate may take.

    Seconds that could become a verdict are CPU seconds of the worker: a busy machine fails no candidate.

    Attributes:
        compile_s: CPU seconds for compiling; beyond, the candidate has `TimedOut`.
        steps: warp instructions of one simulated run; beyond, it has `TimedOut`.
        run_s: wall seconds of one launch on a GPU.
        memory_bytes: address space of a worker process.
        worker_s: CPU seconds of one whole evaluation; beyond, it is a defect of the engine.
        hang_s: wall seconds of the same; beyond, the worker hangs: a defect too.
    """

    compile_s: float = 30.0
    steps: int = 50_000_000
    run_s: float = 1.0
    memory_bytes: int = 3 << 30
    worker_s: float = 300.0
    hang_s: float = 1800.0


@dataclass(frozen=True)
class PrepareRequest:
    """Gates 1 to 3 of one kernel, answered with `Prepared` or an Outcome."""

    task: Task
    kernel: Kernel


@dataclass(frozen=True)
class JudgeRequest:
    """All gates up to `depth`, answered with an Outcome (arguments as `fitness.evaluate.judge`)."""

    task: Task
    kernel: Kernel
    depth: Gate
    incumbent_us: float | None = None
    full: bool = False
    rivals: tuple[str, ...] = ()
    against: Kernel | None = None


@dataclass(frozen=True)
class BaselineRequest:
    """Times of vendor routines on a card, answered with a tuple of `fitness.baselines.measuring.BaselineTimes`."""

    task: Task
    names: tuple[str, ...]


Request = PrepareRequest | JudgeRequest | BaselineRequest


@dataclass(frozen=True)
class Ready:
    """The worker has started and takes requests."""


@dataclass(frozen=True)
class Entered:
    """The request in hand has entered this gate."""

    gate: Gate


@dataclass(frozen=True)
class Answer:
    """The request in hand is done: a `Prepared` or an Outcome. `spent`: its device is broken, replace the worker."""

    result: object
    spent: bool = False


@dataclass(frozen=True)
class OutOfMemory:
    """The request in hand met the memory limit at this gate; the worker lives, but is no longer fresh."""

    gate: Gate


@dataclass(frozen=True)
class Fault:
    """An unexpected exception at this gate, with its traceback: a defect of the engine.

    `machine`: a fault of the machine or the installation instead (a full disk, a missing library), which every
    candidate would meet: the one line that says which. Empty where it is none.
    """

    gate: Gate
    traceback: str
    machine: str


Message = Ready | Entered | Answer | OutOfMemory | Fault


# -- the parent's side --------------------------------------------------------------------------------------------


class Worker:
    """A worker process as the parent sees it. `connection` can be waited for; `stage` is what it does."""

    def __init__(self, spec: DeviceSpec, limits: CandidateLimits) -> None:
        requests, self.connection = _pipe()
        lifeline, self._lifeline = os.pipe()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the worker
        self.stage: Gate | None = None
        self._end: str | None = None
        command = [sys.executable, "-c", _START, str(requests.fileno()), str(lifeline)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=(requests.fileno(), lifeline),
                env=_environment() | ({"CUDA_VISIBLE_DEVICES": spec.visible} if spec.visible else {}),
                start_new_session=True,
            )
        finally:
            requests.close()
            os.close(lifeline)
        with contextlib.suppress(OSError):  # died at once: the first receive says so
            self.connection.send((spec, limits))

    def send(self, request: Request) -> None:
        """Hand it a request; it must be idle.

        Raises:
            OSError: it is dead.
        """
        self.stage = Gate.PARSE
        self.connection.send(request)

    def receive(self) -> Message:
        """The next message; blocks.

        Raises:
            EOFError: it died.
        """
        try:
            message: Message = self.connection.recv()
        except OSError as error:
            raise EOFError(str(error)) from error
        if isinstance(message, Entered):
            self.stage = message.gate
        return message

    def kill(self) -> str:
        """End the process group at once and release everything. Returns how it ended, with its last words."""
        if self._end is None:
            self._end = self._kill()
        return self._end

    def _kill(self) -> str:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self.connection.close()
        os.close(self._lifeline)
        self._stderr.seek(0)
        words = self._stderr.read()[-2000:].decode(errors="replace").strip()
        self._stderr.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{how}; {words}" if words else how

    def crashed(self) -> bool:
        """True if it ended by itself through a fault of native code (not by SIGKILL from outside)."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            # The pipe closes a moment before the exit status is there.
            code = self._process.wait(timeout=5)
            return (
                code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE) or code > 0
            )
        return False

    def cpu_s(self) -> float:
        """CPU seconds it has used since it started; 0 if it is gone, as the end of its pipe will tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        user, system = int(fields[11]), int(fields[12])
        return (user + system) / os.sysconf("SC_CLK_TCK")

    @property
    def pid(self) -> int:
        """Process id, which is its process group's too."""
        return self._process.pid


def _pipe() -> tuple[Connection, Connection]:
    from multiprocessing import Pipe

    return Pipe(duplex=True)


def _environment() -> dict[str, str]:
    environment = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
    environment.update(ONE_THREAD)
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONDONTWRITEBYTECODE"] = os.environ.get("PYTHONDONTWRITEBYTECODE", "")
    return environment


# -- the worker's side --------------------------------------------------------------------------------------------


def _watch(lifeline: int) -> None:
    """Ends the process group when the parent's end of the lifeline closes: it closes however the parent dies."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def _limit(spec: DeviceSpec, limits: CandidateLimits) -> None:
    if spec.kind != "cuda":  # a CUDA context reserves far more addresses than it uses memory
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(
    request: Request, device: Device, spec: DeviceSpec, limits: CandidateLimits, connection: Connection
) -> Message:
    from fitness import evaluate

    stage = Gate.PARSE

    def entered(gate: Gate) -> None:
        nonlocal stage
        stage = gate
        connection.send(Entered(gate))

    try:
        result: object | Outcome
        if isinstance(request, PrepareRequest):
            result = evaluate.prepare(request.kernel, request.task, device, compiler=spec.compiler, on_gate=entered)
        elif isinstance(request, BaselineRequest):
            from fitness.baselines.measuring import measure
            from fitness.devices.cuda.cuda import Cuda

            assert isinstance(device, Cuda), "only a card times vendor routines"
            entered(Gate.TIMING)
            result = measure(request.task, device, request.names)
        else:
            result = evaluate.judge(
                request.kernel,
                request.task,
                device,
                depth=request.depth,
                incumbent_us=request.incumbent_us,
                full=request.full,
                rivals=request.rivals,
                against=request.against,
                steps=limits.steps,
                compiler=spec.compiler,
                on_gate=entered,
            )
    except MemoryError:
        return OutOfMemory(stage)
    except Exception as error:  # noqa: BLE001 -- the sandbox boundary: whatever it is, the parent must hear of it
        return Fault(stage, traceback.format_exc(), _of_the_machine(error))
    return Answer(result, isinstance(device, Perishable) and device.spent)


def _of_the_machine(error: Exception) -> str:
    """What ails the machine or the installation, in one line; empty where the error is a defect of the engine."""
    if isinstance(error, CacheError | NvrtcError):  # written for the user
        return " ".join(str(error).split())
    if isinstance(error, OSError | ImportError):
        return " ".join(f"{type(error).__name__}: {error}".split())
    return ""


def main(arguments: list[str]) -> int:
    """Serve requests until the parent closes the pipe. Arguments: the descriptors of pipe and lifeline."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(int(arguments[1]),), daemon=True).start()
    connection = Connection(int(arguments[0]))
    spec, limits = connection.recv()
    _limit(spec, limits)
    device = open_device(spec.kind, load(spec.gpu))
    if isinstance(device, Perishable):
        device.run_s = limits.run_s
    if spec.lock and isinstance(device, Shareable):
        device.share(spec.lock)
    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent is gone or has had enough
        connection.send(Ready())
        while True:
            connection.send(_answer(connection.recv(), device, spec, limits, connection))
    return 0
