"""Records what kernels give on a real card, to compare the simulator with (cases in hardware_cases.py).

    python -m tests.fitness.simulator.hardware_hopper missing OUT.npz            # compiles and runs what the data lack
    python -m tests.fitness.simulator.hardware_hopper build [--missing] jobs.npz # anywhere: compiles, makes inputs
    python -m tests.fitness.simulator.hardware_hopper record jobs.npz OUT.npz    # runs them

`record` needs NumPy, cuda-bindings and a driver, and no compiler; `missing` is both in one. OUT is to replace
data/h200_hopper.npz, whose other cases it holds as they were. Inputs are made from fixed seeds, so only the outputs are
kept, and of wgmma's accumulators every fifth thread's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Container, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fitness.devices.device import Argument, BufferRef, Entry, Parameter, ResolvedLaunch, ResolvedTensorMap, Scalar
from tests.fitness.simulator.hardware_cases import Array, Case, cases

DATA = Path(__file__).parent / "data" / "h200_hopper.npz"
_KINDS = {BufferRef: "buffer", Scalar: "scalar", ResolvedTensorMap: "map"}
_TIMEOUT_S = 20.0
_INVALID_VALUE = 1  # CUresult

# ---------------------------------------------------------------- build


def held(data: Path = DATA) -> dict[str, Array]:
    """What has been recorded, by "case/output"."""
    return dict(np.load(data)) if data.is_file() else {}


def is_recorded(case: Case, recorded: Container[str]) -> bool:
    """Whether a card has said what a case gives."""
    return f"{case.name}/fault" in recorded or any(f"{case.name}/{name}" in recorded for name in case.outputs)


def build(path: Path, recorded: Container[str] = ()) -> None:
    """Compile every case that is not among those recorded; write cubins, inputs and launches."""
    from tests.fitness.simulator.engine import compiled

    arrays: dict[str, Array] = {}
    index: list[dict[str, Any]] = []
    for number, case in enumerate(case for case in cases() if not is_recorded(case, recorded)):
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


def record(jobs: Path, out: Path, data: Path = DATA) -> None:
    """Run every case on the card; its outputs, or the driver's error code where it faults, replace those of the data.

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
    np.savez_compressed(out, allow_pickle=False, **{**_without(held(data), names), **results})
    sys.stdout.write(f"{len(names) - len(died)} cases in {out}" + "\n")
    sys.stdout.flush()
    if died:
        raise SystemExit(f"not recorded, for the process died: {', '.join(died)}")


def _without(arrays: dict[str, Array], names: Iterable[str]) -> dict[str, Array]:
    """The arrays of other cases than these."""
    gone = set(names)
    return {key: array for key, array in arrays.items() if key.rsplit("/", 1)[0] not in gone}


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
    building.add_argument("--missing", action="store_true", help="only what the data lack")
    recording = commands.add_parser("record", help="run on the card")
    recording.add_argument("jobs", type=Path)
    recording.add_argument("out", type=Path)
    lacking = commands.add_parser("missing", help="compile and run on the card what the data lack")
    lacking.add_argument("out", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "build":
        build(chosen.jobs, held() if chosen.missing else ())
    elif chosen.command == "record":
        record(chosen.jobs, chosen.out)
    else:
        with tempfile.TemporaryDirectory() as folder:
            jobs = Path(folder) / "jobs.npz"
            build(jobs, held())
            record(jobs, chosen.out)


if __name__ == "__main__":
    main()
