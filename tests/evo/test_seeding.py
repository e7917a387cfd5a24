from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from evo.errors import BaselineError, SeedError
from evo.experiment import Experiment
from evo.seeding import baseline_kernel, starting_seeds
from fitness.outcome import Gate, Timed
from fitness.task import Task
from mutations.operator import Candidate, Judged, Plan
from tests.evo import fakes


def task(*seeds: str, **changes: object) -> Task:
    return fakes.experiment(task__seeds=list(seeds), **changes).checked_task


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_every_shipped_nm24_seed_starts_at_its_defaults() -> None:
    root = Path(__file__).parent.parent.parent
    shipped = Experiment.load(root / "experiments" / "nm24.toml").checked_task
    seeds, notes = starting_seeds(shipped)
    files = {f"spmm/{path.stem}" for path in (root / "seeds" / "spmm").glob("nm24_*.cu")}
    assert {seed.name for seed in seeds} == files - {"spmm/nm24_bf16"}
    dropped = {note.name: note.dropped for note in notes if note.dropped is not None}
    assert dropped == {"spmm/nm24_bf16": "dtypes: the code is written for bfloat16, the task asks for float16"}
    for seed in seeds:
        assert dict(seed.kernel.params) == {name: param.default for name, param in seed.kernel.header.params.items()}
    assert baseline_kernel(shipped).name == "gemm/dense_mma_pipelined"


def test_own_files_and_globs_in_order_each_once(tmp_path: Path) -> None:
    one = written(tmp_path, "one.cu", fakes.source("slow"))
    written(tmp_path, "two.cu", fakes.source("fast"))
    seeds, notes = starting_seeds(task(one, f"{tmp_path}/*.cu"))
    assert [seed.kernel.header.about for seed in seeds] == ["slow", "fast"]
    assert [note.dropped for note in notes] == [None, f"the same as {one}", None]


def test_code_written_for_another_architecture_is_dropped_with_the_reason(tmp_path: Path) -> None:
    text = fakes.source("fast").replace("[[launch]]", 'archs = ["sm_90a"]\n[[launch]]', 1)
    hopper, any_card = written(tmp_path, "h.cu", text), written(tmp_path, "any.cu", fakes.source("slow"))
    seeds, notes = starting_seeds(task(hopper, any_card), arch="sm_80")
    assert [seed.kernel.header.about for seed in seeds] == ["slow"]
    assert notes[0].dropped == "archs: the code is written for sm_90a, not for sm_80"
    assert len(starting_seeds(task(hopper, any_card), arch="sm_90a")[0]) == 2


def test_a_format_that_cannot_store_the_operand_is_dropped_with_the_reason(tmp_path: Path) -> None:
    fits = written(tmp_path, "a.cu", fakes.source("fast"))
    other = written(tmp_path, "b.cu", fakes.source("slow"))
    gemm = fakes.spec()["task"] | {"op": "gemm", "seeds": [fits, other]}
    del gemm["pattern"]
    with pytest.raises(SeedError, match=r"no kernel to start from \(.*a\.cu: .*nm24"):
        starting_seeds(Task.from_spec(gemm))


def test_require_that_excludes_a_shape_is_dropped(tmp_path: Path) -> None:
    text = fakes.source("fast").replace("[[launch]]", 'require = ["N % 64 == 0"]\n[[launch]]', 1)
    narrow, wide = written(tmp_path, "n.cu", text), written(tmp_path, "w.cu", fakes.source("slow"))
    seeds, notes = starting_seeds(task(narrow, wide))
    assert [seed.name for seed in seeds] == [wide]
    assert notes[0].dropped is not None
    assert "N % 64 == 0" in notes[0].dropped


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "spmm/nothing_*",
            r'"spmm/nothing_\*" matches no seed; known: (spmm/\w+, )+spmm/\w+; or the path of a \.cu file$',
        ),
        ("smm/*", r'"smm/\*" matches no seed; known: gemm/\*, spmm/\*, .*; or the path of a \.cu file$'),
        ("spmm/nm24_scaler", "matches no seed; did you mean spmm/nm24_scalar"),
        ("none.cu", "no such file$"),
    ],
)
def test_names_that_match_nothing(name: str, words: str) -> None:
    with pytest.raises(SeedError, match=words):
        starting_seeds(task(name))


def test_a_file_that_is_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(SeedError, match=r"bad\.cu:1"):
        starting_seeds(task(written(tmp_path, "bad.cu", "int x;")))


def test_seeds_from_the_archive(tmp_path: Path) -> None:
    class Library:
        def similar(self, task: Task, limit: int) -> Sequence[Judged]:
            assert task.op == "spmm"
            assert limit > 0
            judged = Candidate(Plan(3, 1, 0, "tune", (0,)), fakes.kernel("fast", A=4), "")
            return [Judged(judged, Timed(Gate.TIMING))]

    own = written(tmp_path, "a.cu", fakes.source("slow"))
    seeds, _ = starting_seeds(task("archive:similar", own), Library())
    assert seeds[0].kernel.params["A"] == 4
    assert seeds[0].name.startswith("archive:")
    assert [seed.name for seed in starting_seeds(task("archive:similar", own))[0]] == [own]


@pytest.mark.parametrize(
    ("baseline", "words"), [("gemm/nothing", "matches no kernel"), ("gemm/dense_*", "matches 3 kernels")]
)
def test_baselines_that_are_not_one_kernel(baseline: str, words: str) -> None:
    with pytest.raises(BaselineError, match=words):
        baseline_kernel(fakes.experiment(task__baseline=baseline).checked_task)
