"""What a call costs a user besides the kernel: upload, launch, waiting; in a process of its own, operands warm.

These are not the times candidates are ranked by: operands are the same each time and mostly in L2.
"""

from __future__ import annotations

import json
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from fitness.devices.cuda.driver import Card
from fitness.devices.cuda.loaded import LoadedProgram
from fitness.devices.cuda.tools import ToolError, job_command
from fitness.devices.device import Inputs, Program
from fitness.gpu import Gpu

_WAIT_S: Final = 60.0
_LIMIT_S: Final = 300.0
_BATCHES: Final = 21
_BATCH: Final = 20  # calls of one batch


@dataclass(frozen=True)
class CallCost:
    """Medians over batches of calls on warm operands.

    Attributes:
        upload_s: seconds that the packed W takes to the card, once per model.
        launch_us: of the host, to enqueue one call.
        stream_us: of one call among others in a stream: the larger of launch and kernel.
        graph_us: of one call in a captured graph of `_BATCH`.
        request_us: from X in the host's memory to Y in the host's memory, alone, waiting for it.
    """

    upload_s: float
    launch_us: float
    stream_us: float
    graph_us: float
    request_us: float


def measure(program: Program, inputs: Inputs, gpu: Gpu) -> CallCost:
    """The cost of calls of a program that is known to be right.

    Raises:
        ToolError: the process that measures failed; the message has its last line.
    """
    with job_command("fitness.devices.cuda.endtoend", program, inputs, gpu) as (command, environment):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_LIMIT_S, env=environment, check=False
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"measuring end to end took more than {_LIMIT_S:g} s") from None
    if done.returncode != 0:
        raise ToolError(f"measuring end to end failed: {(done.stderr.strip() or 'no output').splitlines()[-1][:300]}")
    return CallCost(**json.loads(done.stdout))


def cost(card: Card, program: Program, inputs: Inputs) -> CallCost:
    """Measure on an open card."""
    loaded = LoadedProgram(card, program)
    sizes = {name: array.nbytes for name, array in {**inputs.buffers, **inputs.outputs}.items()}
    sizes |= {space.name: space.bytes for space in program.workspaces}
    pointers = {name: card.allocate(size) for name, size in sizes.items()}
    began = time.perf_counter()
    for name, array in inputs.buffers.items():
        if name.startswith("W."):
            card.upload(pointers[name], np.ascontiguousarray(array))
    upload_s = time.perf_counter() - began
    moving = [name for name in inputs.buffers if not name.startswith("W.")]
    for name in moving:
        card.upload(pointers[name], np.ascontiguousarray(inputs.buffers[name]))
    for space in program.workspaces:
        card.fill(pointers[space.name], 0, space.bytes)
    arguments = loaded.arguments(pointers)

    def call() -> None:
        loaded.enqueue(pointers, sizes, arguments)

    def request() -> None:
        for name in moving:
            card.upload(pointers[name], np.ascontiguousarray(inputs.buffers[name]))
        call()
        card.wait(_WAIT_S)
        for name in inputs.outputs:
            card.download(pointers[name], sizes[name])

    request()
    launch, stream = _in_stream(card, call)
    return CallCost(upload_s, launch, stream, _in_graph(card, call), 1e6 * _median_s(request))


def _in_stream(card: Card, call: Callable[[], None]) -> tuple[float, float]:
    """(host, stream) microseconds of one call."""
    begin, end = card.event(), card.event()
    host, stream = [], []
    for _ in range(_BATCHES):
        card.record(begin)
        began = time.perf_counter()
        for _ in range(_BATCH):
            call()
        host.append(1e6 * (time.perf_counter() - began) / _BATCH)
        card.record(end)
        card.wait(_WAIT_S)
        stream.append(card.elapsed_us(begin, end) / _BATCH)
    return statistics.median(host), statistics.median(stream)


def _in_graph(card: Card, call: Callable[[], None]) -> float:
    begin, end = card.event(), card.event()

    def enqueue() -> None:
        card.record(begin)
        for _ in range(_BATCH):
            call()
        card.record(end)

    graph = card.capture(enqueue)
    taken = []
    for _ in range(_BATCHES):
        card.replay(graph)
        card.wait(_WAIT_S)
        taken.append(card.elapsed_us(begin, end) / _BATCH)
    card.drop(graph)
    return statistics.median(taken)


def _median_s(call: Callable[[], None]) -> float:
    taken = []
    for _ in range(_BATCHES):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main(arguments: list[str]) -> int:
    """Measure the program in the file named first; print the result as JSON."""
    program, inputs, _ = pickle.loads(Path(arguments[0]).read_bytes())
    sys.stdout.write(json.dumps(asdict(cost(Card(), program, inputs))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
