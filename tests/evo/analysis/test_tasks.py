"""Which matrices share a task, and what it asks for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evo.analysis.job import Asked, Result, analyse_all, collect
from evo.analysis.tasks import write_tasks
from evo.experiment import Experiment
from evo.seeding import starting_seeds
from fitness import gpu as gpus
from fitness.analysis.floors import COLUMNS


def results(
    path: Path, columns: tuple[int, ...] = COLUMNS, dtype: str = "float16", gpu: str = "H200", **arrays: Any
) -> list[Result]:
    np.savez(path, **arrays)
    batch = collect([path], ())
    found = list(analyse_all(batch, Asked(gpus.load(gpu), dtype, columns), lambda *_: None))
    return [result for result in found if isinstance(result, Result)]


def random(density: float, seed: int, shape: tuple[int, int] = (1024, 1024)) -> Any:
    return (np.random.default_rng(seed).random(shape) < density).astype(np.float32)


def test_alike_layers_share_a_task_and_others_do_not(tmp_path: Path) -> None:
    found = results(
        tmp_path / "m.npz",
        a=random(0.05, 0),
        b=random(0.05, 0),
        c=random(0.2, 1),
        d=random(0.05, 0, (1024, 512)),
        full=np.ones((1024, 1024), np.float32),
        none=np.zeros((1024, 1024), np.float32),
    )
    written, unwritten = write_tasks(found, tmp_path / "tasks")
    groups = {task.path.stem: [title.split()[-1] for title in task.matrices] for task in written}
    assert groups == {"a": ["a", "b"], "c": ["c"], "d": ["d"]}
    reasons = {task.matrices[0].split()[-1]: task.reason for task in unwritten}
    assert "stay dense" in reasons["full"]
    assert "no kernel is needed" in reasons["none"]


def test_columns_asked_for_are_those_it_can_pay_on(tmp_path: Path) -> None:
    found = results(tmp_path / "m.npz", a=random(0.01, 0))
    write_tasks(found, tmp_path)
    shapes = Experiment.load(tmp_path / "a.toml").checked_task.shapes
    assert [shape["N"] for shape in shapes] == [8, 128, 512]


def test_a_vector_is_a_task_of_spmv(tmp_path: Path) -> None:
    write_tasks(results(tmp_path / "m.npz", (1,), a=random(0.01, 0)), tmp_path)
    task = Experiment.load(tmp_path / "a.toml").checked_task
    assert (task.op, task.seeds[0].split("/")[0]) == ("spmv", "spmv")


def test_what_no_task_can_hold_is_said(tmp_path: Path) -> None:
    found = results(tmp_path / "m.npz", a=random(0.01, 0))
    impossible = [Result(r.path, r.kind, r.name, dataclasses.replace(r.analysis, gpu_dtype="int8")) for r in found]
    written, unwritten = write_tasks(impossible, tmp_path / "tasks")
    assert not written
    assert "task.dtype: 'int8' is not known" in unwritten[0].reason
    assert not (tmp_path / "tasks").exists()


@pytest.mark.parametrize("name", ["42", "best", "a/b c", "\u00fc", "x" * 200])
def test_names_become_names_of_runs(tmp_path: Path, name: str) -> None:
    found = results(tmp_path / "m.npz", **{name: random(0.01, 0)})
    written, unwritten = write_tasks(found, tmp_path / "tasks")
    assert not unwritten
    assert Experiment.load(written[0].path).name == written[0].path.stem


def test_a_file_that_is_gone_by_then_is_said(tmp_path: Path) -> None:
    found = results(tmp_path / "m.npz", a=random(0.01, 0))
    (tmp_path / "m.npz").unlink()
    written, unwritten = write_tasks(found, tmp_path / "tasks")
    assert not written
    assert "cannot be read" in unwritten[0].reason


def test_compressed_rows_are_no_seeds_where_they_are_far_larger(tmp_path: Path) -> None:
    seeds = {}
    for name, density in (("half", 0.4), ("few", 0.01)):
        write_tasks(results(tmp_path / f"{name}.npz", (32,), **{name: random(density, 0, (4096, 2048))}), tmp_path)
        seeds[name] = Experiment.load(tmp_path / f"{name}.toml").checked_task.seeds
    assert seeds["half"] == ("spmm/bitmap_*",)
    assert "spmm/csr_*" in seeds["few"]


def nm(n: int, m: int) -> Any:
    ranks = np.argsort(np.argsort(np.random.default_rng(0).random((1024, 1024 // m, m)), axis=2), axis=2)
    return (ranks < n).reshape(1024, 1024).astype(np.float32)


def blocks(size: int, seed: int = 0) -> Any:
    count = (1024 // size) ** 2
    where = np.random.default_rng(seed).permutation(count) < count // 5
    return np.kron(where.reshape(1024 // size, -1), np.ones((size, size), np.float32))


@pytest.mark.parametrize(("dtype", "gpu"), [("float16", "A100"), ("bfloat16", "H200"), ("float32", "H200")])
def test_every_task_has_seeds_that_are_written_for_it(tmp_path: Path, dtype: str, gpu: str) -> None:
    """Such files ended a run before it began: every seed of 2:4 is for float16."""
    arrays = {"nm24": nm(2, 4), "nm14": nm(1, 4), "half": random(0.5, 0), "tenth": random(0.1, 0)}
    arrays |= {"few": random(0.004, 0), "blocks": blocks(32), "band": np.tri(1024, k=4) - np.tri(1024, k=-5)}
    arrays |= {"rows": np.outer(np.arange(1024) % 3 == 0, np.ones(1024)).astype(np.float32)}
    for columns in ((1,), COLUMNS):
        folder = tmp_path / str(len(columns))
        written, _ = write_tasks(results(tmp_path / "m.npz", columns, dtype, gpu, **arrays), folder)
        assert len(written) > 5
        for task in written:
            asked = Experiment.load(task.path).checked_task
            seeds, _ = starting_seeds(asked, arch=gpus.load(gpu).arch)
            assert seeds
    first = {"float16": "spmm/nm24_*", "bfloat16": "spmm/nm24_bf16", "float32": "spmm/nm_*"}
    assert Experiment.load(folder / "nm24.toml").checked_task.seeds[0] == first[dtype]


def test_layers_that_differ_by_chance_alone_share_a_task(tmp_path: Path) -> None:
    layers = {f"b{seed}": blocks(32, seed) for seed in range(4)}
    layers |= {f"r{seed}": random(0.1, seed) for seed in range(4)}
    found = results(tmp_path / "m.npz", **layers)
    density = [result.analysis.density for result in found]
    assert len(set(density)) > 4
    written, _ = write_tasks(found, tmp_path / "tasks")
    assert sorted(len(task.matrices) for task in written) == [4, 4]
