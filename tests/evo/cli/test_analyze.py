"""`evo analyze` from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import sparse

from evo.cli.group import cli
from evo.experiment import Experiment
from tests.fitness.matrices.test_safetensors import pruned, write


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["analyze", *arguments])


def two_of_four(rows: int = 1024, columns: int = 1024, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    bits = np.zeros((rows, columns // 4, 4))
    np.put_along_axis(bits, rng.random(bits.shape).argsort(axis=2)[..., :2], 1.0, axis=2)
    return bits.reshape(rows, columns)


def model(path: Path) -> Path:
    blocks = np.kron(np.random.default_rng(1).random((64, 64)) < 0.1, np.ones((16, 16)))
    return write(
        path,
        {
            "layers.0.q.weight": ("F16", two_of_four(seed=0).astype(np.float16)),
            "layers.1.q.weight": ("F16", two_of_four(seed=1).astype(np.float16)),
            "layers.0.up.weight": ("BF16", blocks.astype(ml_dtypes.bfloat16)),
            "layers.0.norm.weight": ("F16", np.ones(64, np.float16)),
            "head.weight": ("F16", pruned(np.float16, (128, 128), 1.0)),
        },
    )


def test_one_matrix_in_full() -> None:
    sparse.save_npz("a.npz", sparse.eye_array(300, format="csr", dtype=np.float32))
    result = run("a.npz")
    assert result.exit_code == 0, result.output
    for words in ("300 x 300", "density 0.333 %", "diagonal triangular", "1:4", "floors", "verdict", "reordering"):
        assert words in result.output
    assert max(map(len, result.output.splitlines())) < 200


def test_a_model_as_a_table() -> None:
    result = run(str(model(Path("m.safetensors"))))
    assert result.exit_code == 0, result.output
    assert "4 matrices with 4 different patterns" in result.output
    assert "skipped    1 tensors" in result.output
    assert "layers.0.up.weight" in result.output
    assert "16x16" in result.output


def test_layers_can_be_chosen() -> None:
    path = str(model(Path("m.safetensors")))
    found = json.loads(run(path, "--layers", "*.q.*", "--json").stdout)
    assert [matrix["name"] for matrix in found["matrices"]] == ["layers.0.q.weight", "layers.1.q.weight"]
    assert run(path, "--layers", "nothing").exit_code == 1
    assert "no matrix is called nothing" in run(path, "--layers", "nothing").stderr


def test_json_says_everything() -> None:
    found = json.loads(run(str(model(Path("m.safetensors"))), "--json", "--columns", "4,64", "--gpu", "A100").stdout)
    first = found["matrices"][0]
    assert (first["rows"], first["columns"], first["gpu"], first["dtype"]) == (1024, 1024, "A100", "float16")
    assert first["ratios"]["share_of_groups"]["2:4"] == 1
    assert first["ratios"]["least_n"]["4"] == 2
    assert {floor["columns"] for floor in first["floors"]} == {4, 64}
    assert first["blocks"]["sizes"]["16x16"]["fill"] == pytest.approx(0.5)
    assert len(first["density_map"]) == 128
    orders = found["matrices"][2]["reordering"]["orders"]
    assert {order["name"] for order in orders} >= {"natural", "reverse_cuthill_mckee"}
    assert found["skipped"][0]["name"] == "layers.0.norm.weight"


def test_tasks_are_ready_to_run_and_equal_layers_come_once() -> None:
    result = run(str(model(Path("m.safetensors"))), "--task-out", "tasks", "--dtype", "float16", "--columns", "64,4096")
    assert result.exit_code == 0, result.output
    files = sorted(Path("tasks").glob("*.toml"))
    assert [file.stem for file in files] == ["layers-0-q", "layers-0-up"]
    assert "layers.0.q.weight and 1 equal to it" in result.output
    assert "no task" in result.output
    assert "stay dense" in result.output
    experiments = {file.stem: Experiment.load(file) for file in files}
    nm, blocks = experiments["layers-0-q"].checked_task, experiments["layers-0-up"].checked_task
    assert nm.pattern == {"kind": "nm", "n": 2, "m": 4}
    assert nm.seeds[0] == "spmm/nm24_*"
    assert blocks.pattern is not None
    assert (blocks.pattern["kind"], blocks.pattern["matrix"]) == ("file", "layers.0.up.weight")
    assert blocks.seeds[0] == "spmm/bsr_*"
    assert "#   m.safetensors layers.1.q.weight" in files[0].read_text(encoding="utf-8")


def test_a_written_task_notices_a_changed_file() -> None:
    array = (np.random.default_rng(0).random((400, 400)) < 0.01).astype(np.float32)
    np.save("w.npy", array)
    assert run("w.npy", "--task-out", "tasks").exit_code == 0
    assert Experiment.load("tasks/w.toml").checked_task.nnz({"M": 400, "K": 400, "N": 1}) == array.sum()
    np.save("w.npy", np.roll(array, 1, axis=0))
    with pytest.raises(Exception, match="other nonzeros"):
        Experiment.load("tasks/w.toml")


def test_pictures() -> None:
    sparse.save_npz("a.npz", sparse.eye_array(30, format="csr"))
    result = run("a.npz", "--picture", "out", "--format", "png", "--format", "svg")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.csv", "a.png", "a.svg"]
    assert Path("out/a.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_with_bad_files_reports_the_good_and_names_the_bad() -> None:
    Path("in/deeper").mkdir(parents=True)
    sparse.save_npz("in/deeper/good.npz", sparse.eye_array(30, format="csr"))
    Path("in/bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 1\n4 1 1\n")
    Path("in/complex.mtx").write_text("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n")
    result = run("in")
    assert result.exit_code == 1
    assert "good.npz" in result.stdout
    assert "evo: in/bad.mtx:3: Row index out of bounds" in result.stderr
    assert "evo: in/complex.mtx:1: a complex matrix" in result.stderr
    found = json.loads(run("in", "--json").stdout)
    assert [len(found["matrices"]), len(found["refused"])] == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.mtx"], 1, "evo: missing.mtx: no such file; check the path"),
        (["a.txt"], 1, "no file of a known kind; known: .mtx"),
        (["empty"], 1, "empty: no matrix in this folder"),
        (["a.npy", "--gpu", "TPU"], 1, "gpu = 'TPU' is not described"),
        (["a.npy", "--columns", "1,x"], 2, "is no list of sizes"),
        (["a.npy", "--columns", "0"], 2, "is no list of sizes"),
        (["a.npy", "--dtype", "float8_e4m3", "--gpu", "A100"], 1, "A100 has no rate for float8_e4m3"),
        ([], 2, "Missing argument"),
    ],
)
def test_mistakes_end_in_one_line(arguments: list[str], code: int, message: str) -> None:
    Path("a.txt").touch()
    Path("empty").mkdir()
    np.save("a.npy", np.eye(30))
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_names_from_a_file_cannot_steer_the_terminal() -> None:
    write(Path("m.safetensors"), {"\x1b[31mred\nline": ("F16", pruned(np.float16, (64, 64), 0.02))})
    result = run("m.safetensors", "--task-out", "tasks")
    assert "\x1b" not in result.output
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_a_written_task_runs() -> None:
    np.save("w.npy", (np.random.default_rng(0).random((512, 1024)) < 0.02).astype(np.float32))
    assert run("w.npy", "--task-out", "tasks", "--columns", "256").exit_code == 0
    command = [sys.executable, "-m", "evo", "run", "tasks/w.toml", "--dry-run", "--archive", "a.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert "headroom" in done.stdout
