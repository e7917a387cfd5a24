"""Records what kernels give on a real card, to compare the simulator with (cases in hardware_cases.py).

    python -m tests.fitness.simulator.hardware_hopper build jobs.npz       # anywhere: compiles, makes inputs
    python -m tests.fitness.simulator.hardware_hopper record jobs.npz tests/fitness/simulator/data/h200_hopper.npz

`record` needs NumPy, cuda-bindings and a driver, and no compiler. Inputs are made from fixed seeds, so only the
outputs are kept, and of wgmma's accumulators every fifth thread's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fitness.devices.device import Argument, BufferRef, Entry, Parameter, ResolvedLaunch, ResolvedTensorMap, Scalar
from tests.fitness.simulator.hardware_cases import Array, Case, cases

_KINDS = {BufferRef: "buffer", Scalar: "scalar", ResolvedTensorMap: "map"}
_TIMEOUT_S = 20.0
_INVALID_VALUE = 1  # CUresult

# ---------------------------------------------------------------- build


def build(path: Path) -> None:
    """Compile every case and write cubins, inputs and launches."""
    from tests.fitness.simulator.engine import compiled

    arrays: dict[str, Array] = {}
    index = []
    for number, case in enumerate(cases()):
        program = compiled(case.source, options=case.options)
        arrays[f"{number}.cubin"] = np.frombuffer(program.cubin, np.uint8)
        for name, array in case.buffers.items():
            arrays[f"{number}.in.{name}"] = array
        index.append(_described(case, program.entries))
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(path, allow_pickle=False, **arrays)
    sys.stdout.write(f"{len(index)} cases in {path}" + "\n")


def _described(case: Case, entries: Any) -> dict[str, Any]:
    return {
        "name": case.name,
        "launches": [packed(launch) for launch in case.sequence],
        "parameters": {name: [asdict(p) for p in entry.parameters] for name, entry in entries.items()},
        "inputs": list(case.buffers),
        "outputs": {name: [list(a.shape), a.dtype.str] for name, a in case.outputs.items()},
        "workspaces": {workspace.name: workspace.bytes for workspace in case.workspaces},
        "step": case.step,
    }


def packed(launch: ResolvedLaunch) -> dict[str, Any]:
    """A launch as JSON has it."""
    return asdict(launch) | {"arguments": [{"kind": _KINDS[type(a)], **asdict(a)} for a in launch.arguments]}


def unpacked(fields: dict[str, Any]) -> ResolvedLaunch:
    """The launch that `packed` wrote."""

    def tuples(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values}

    arguments: list[Argument] = []
    for given in fields["arguments"]:
        rest = tuples((name, value) for name, value in given.items() if name != "kind")
        kind = next(kind for kind, name in _KINDS.items() if name == given["kind"])
        arguments.append(kind(**rest))
    return ResolvedLaunch(**tuples(fields.items()) | {"arguments": tuple(arguments)})


# ---------------------------------------------------------------- record


def record(jobs: Path, out: Path) -> None:
    """Run every case on the card and keep the outputs, or the driver's error code where it faults.

    A fault ends the process's context: the cases after it run in a new process.

    Raises:
        SystemExit: a process died for another reason; what was recorded is kept, and the case is named.
    """
    spawn = multiprocessing.get_context("spawn")
    results: dict[str, Array] = {}
    names = [case["name"] for case in json.loads(np.load(jobs)["index"].tobytes())]
    done, died = 0, []
    while done < len(names):
        mine, its = spawn.Pipe(duplex=False)
        worker = spawn.Process(target=_record_from, args=(jobs, done, its))
        worker.start()
        its.close()
        before = done
        try:
            while True:
                found = mine.recv()
                results |= found
                done += "card" not in found
        except EOFError:
            worker.join()
        if "card" not in results:
            raise SystemExit("no card")
        if worker.exitcode or done == before:
            died.append(f"{names[done]} ({worker.exitcode})" if done < len(names) else "after the last")
            done += 1
    np.savez_compressed(out, allow_pickle=False, **results)
    sys.stdout.write(f"{len(names) - len(died)} cases in {out}" + "\n")
    if died:
        raise SystemExit(f"not recorded, for the process died: {', '.join(died)}")


def _record_from(jobs: Path, first: int, sink: Any) -> None:
    """Send {"case/output": array} of the cases from the first one on, {"case/fault": code} for one that faults."""
    from fitness.devices.cuda.driver import CudaError, HangError

    given = np.load(jobs)
    card = _bare_card()
    sink.send({"card": np.frombuffer(card.name.encode(), np.uint8)})
    for number, case in enumerate(json.loads(given["index"].tobytes())):
        if number < first:
            continue
        try:
            sink.send(_recorded(card, given, number, case))
        except (CudaError, HangError) as error:
            sys.stdout.write(f"{case['name']}: {error}" + "\n")
            sys.stdout.flush()
            if getattr(error, "code", -1) == _INVALID_VALUE:  # not launched: nothing is known
                os._exit(1)
            sink.send({f"{case['name']}/fault": np.array(getattr(error, "code", -1))})
            os._exit(0)  # the context cannot be used any more, nor taken down in order


def _bare_card() -> Any:
    """The first card's primary context through cuda-bindings alone: nothing here needs PyCUDA."""
    from cuda.bindings import driver

    from fitness.devices.cuda.driver import Card, checked

    class Bare(Card):
        def __init__(self) -> None:
            self.cu = driver
            checked(driver.cuInit(0), "cuInit")
            device = checked(driver.cuDeviceGet(0), "cuDeviceGet")
            checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device), "context")), "context")
            self.stream = int(checked(driver.cuStreamCreate(0), "cuStreamCreate"))
            self.name = checked(driver.cuDeviceGetName(128, device), "name").split(b"\0")[0].decode()

    return Bare()


def _recorded(card: Any, given: Any, number: int, case: dict[str, Any]) -> dict[str, Array]:
    """Outputs of one case."""
    from fitness.devices.cuda.driver import Module, argument_bytes

    arrays = {name: np.ascontiguousarray(given[f"{number}.in.{name}"]) for name in case["inputs"]}
    empty = {name: np.zeros(shape, dtype) for name, (shape, dtype) in case["outputs"].items()}
    arrays |= empty | {name: np.zeros(size, np.uint8) for name, size in case["workspaces"].items()}
    places = {name: card.allocate(array.nbytes) for name, array in arrays.items()}
    for name, array in arrays.items():
        card.upload(places[name], array)
    module = Module(card, given[f"{number}.cubin"].tobytes())
    for fields in case["launches"]:
        launch = unpacked(fields)
        parameters = tuple(Parameter(**p) for p in case["parameters"][launch.entry])
        entry = Entry(launch.entry, parameters, 0, 0, 0, 0, 0)
        for name in launch.memset:
            card.fill(places[name], 0, arrays[name].nbytes)
        module.allow(launch)
        module.launch(launch, argument_bytes(entry, launch, places))
        card.wait(_TIMEOUT_S)
    found = {}
    for name, array in empty.items():
        whole = card.download(places[name], array.nbytes).view(array.dtype).reshape(array.shape)
        found[f"{case['name']}/{name}"] = np.ascontiguousarray(whole[..., :: case["step"]])
    module.close()
    for pointer in places.values():
        card.free(pointer)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build", help="compile and make inputs")
    building.add_argument("jobs", type=Path)
    recording = commands.add_parser("record", help="run on the card")
    recording.add_argument("jobs", type=Path)
    recording.add_argument("out", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "build":
        build(chosen.jobs)
    else:
        record(chosen.jobs, chosen.out)


if __name__ == "__main__":
    main()
