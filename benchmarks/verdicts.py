"""Whether a change of the engine changes verdicts: every seed and some random children, judged and written down.

    python -m benchmarks.verdicts --write before.json       # in the tree as it was
    python -m benchmarks.verdicts --compare before.json     # in the changed tree: exit code 1 and the differences

Outcomes, findings, code keys, resources and modelled times must be equal to the last bit; costs in seconds are
left out. Seeds are judged with the full lists, as a run does; children as children.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import evaluate as benchmark
from fitness.devices import open_device
from fitness.evaluate import judge
from fitness.gpu import load
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Outcome
from seeds import seed_paths


def subjects(children: int) -> Iterator[tuple[str, Kernel, bool]]:
    """(name, kernel, full lists): the seeds of both ops, then children of those for the task's own format."""
    for path in (*seed_paths("spmm/*"), *seed_paths("gemm/*")):
        yield f"{path.parent.name}/{path.stem}", load_kernel(path), True
    rng = np.random.default_rng(5)
    parents = seed_paths("spmm/nm24_*")
    for number in range(children):
        path = parents[number % len(parents)]
        yield f"child {number} of {path.stem}", benchmark.child_of(load_kernel(path), rng), False


def content(outcome: Outcome) -> Any:
    """All of an outcome that must not change, as JSON gives it back."""
    fields = dataclasses.asdict(dataclasses.replace(outcome))
    del fields["cost"]
    return json.loads(json.dumps({"kind": outcome.kind, **fields}, default=str))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--children", type=int, default=20)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FILE")
    action.add_argument("--compare", type=Path, metavar="FILE")
    options = parser.parse_args()
    device = open_device("simulator", load("H200"))
    found = {}
    for name, kernel, full in subjects(options.children):
        outcome = judge(kernel, benchmark.TASK, device, full=full)
        found[name] = content(outcome)
        print(f"{name:40}{outcome.kind:>16}{outcome.cost.evaluate_s:8.2f} s", flush=True)
    if options.write is not None:
        options.write.write_text(json.dumps(found, indent=1))
        return 0
    before = json.loads(options.compare.read_text())
    different = [name for name in {**before, **found} if before.get(name) != found.get(name)]
    for name in different:
        print(f"{name}\n  before {before.get(name)}\n  now    {found.get(name)}")
    print(f"{len(found) - len(different)} of {len(found)} verdicts are equal")
    return 1 if different else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EVO_CACHE"] = folder
        raise SystemExit(main())
