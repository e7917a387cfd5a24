"""The benchmark over matrices, as far as it goes without a card: operands, checks, arguments, what it sums up."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks.matrices import ahead, bench, child, cusparse, generated, measure, summary
from benchmarks.matrices.operands import SparseOperands, SparseWeights
from benchmarks.matrices.settings import variants_of
from fitness import gpu as gpus
from fitness.devices.device import FULL_CHECKS, Checks, Execution, Inputs, Measurement, TimingError
from fitness.devices.simulator.simulator import Simulator
from fitness.formats import FormatError
from fitness.inputs import case_of
from fitness.kernel import FormatChoice, Kernel, load_kernel
from fitness.matrices import Mask
from fitness.timing import Plan
from seeds import seed_paths
from tests.fitness.matrices.test_mask import mask_of

H200 = gpus.load("H200")
DATA = Path(__file__).parents[1] / "data" / "matrices"


def made_of(mask: Mask, n: int) -> SparseOperands:
    x = np.random.default_rng(n).standard_normal((mask.shape[1], n), dtype=np.float32)
    return SparseOperands(bench.task_of(mask, n), SparseWeights(mask), x)


def random_mask(rows: int = 90, columns: int = 70, density: float = 0.08) -> Mask:
    return mask_of(np.random.default_rng(0).random((rows, columns)) < density)


@pytest.mark.parametrize("seed", ["spmm/csr_vector", "spmm/coo_segments", "spmm/sell_slices", "spmv/csr_vector"])
def test_seeds_compute_what_is_checked(seed: str) -> None:
    made = made_of(random_mask(), 1 if seed.startswith("spmv") else 9)
    found = bench.program_of(load_kernel(seed_paths(seed)[0]), made, H200)
    assert not isinstance(found, str), found
    case, program = found
    execution = Simulator(H200).run(program, case.inputs, FULL_CHECKS)
    assert not execution.findings
    y = execution.outputs["Y"]
    assert made.wrong(y) == ""
    y.flat[3] += 0.01
    assert "1 elements wrong" in made.wrong(y)
    assert "wrong" in made.wrong(np.full_like(y, np.nan))


def test_formats_far_larger_than_csr_are_left_out() -> None:
    made = made_of(random_mask(600, 600, 0.01), 8)
    with pytest.raises(FormatError, match="times the bytes of CSR"):
        case_of(made.task, made, FormatChoice("blocked_ell"), seed=0, data="normal", gpu=H200)  # type: ignore[arg-type]


def test_every_seed_is_tried_or_left_out_for_a_reason() -> None:
    for n in (1, 8):
        found = dict(bench.kernels_of(bench.task_of(random_mask(), n)))
        assert len(found) == len(seed_paths("spmm/*")) + (len(seed_paths("spmv/*")) if n == 1 else 0)
        assert sum(isinstance(kernel, Kernel) for kernel in found.values()) > 6
        assert all(kernel for kernel in found.values())


def test_a_dry_run_resolves_everything_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    arguments = [str(out), str(DATA), "--only", "swin", "--columns", "1", "8", "--dry-run"]
    with pytest.raises(SystemExit, match="0"):
        measure.main(arguments)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["N"], row["nnz"]) for row in rows] == [(1, 4608), (8, 4608)]
    assert len(rows[0]["seeds"]) > 6
    assert set(rows[0]["cusparse"]) == set(cusparse.SPMV)
    assert set(rows[1]["cusparse"]) == set(cusparse.SPMM)
    with pytest.raises(SystemExit, match="0"):
        measure.main(arguments)
    assert len(out.read_text().splitlines()) == 2
    assert "left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["no such folder"],
        [str(DATA), "--part", "3/2"],
        [str(DATA), "--part", "x"],
        [str(DATA), "--sweep", "spmm/none"],
        [str(DATA), "--sweep", "spmm/csr_rows", "T"],
        [str(DATA), "--sweep", "spmm/csr_rows", "TX=3"],
        [str(DATA), "--sweep", "spmm/csr_rows", "TX=2", "TY=1"],
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        measure.main([str(tmp_path / "out.jsonl"), *words])


def test_a_dry_sweep_resolves_every_setting_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    arguments = [str(out), str(DATA), "--only", "swin", "--columns", "8", "--dry-run", "--sweep", "spmm/csr_rows"]
    for words in (["TX=8", "UNROLL=1,2"], ["TX=8", "UNROLL", "--sweep", "spmm/csr_vector"]):
        with pytest.raises(SystemExit, match="0"):
            measure.main([*arguments, *words])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["sweep"] for row in rows] == ["spmm/csr_rows"] * 4 + ["spmm/csr_vector"]
    assert [row["params"] for row in rows] == [*({"TX": 8, "UNROLL": value} for value in (1, 2, 4, 8)), {}]
    assert all(row["launches"] == 1 for row in rows)
    assert "spmm/csr_rows TX=8 UNROLL=1" in capsys.readouterr().out
    assert child.Known(out).done == set()


# -- one matrix at one N, on a card that is none ----------------------------------------------------------------------


class FakeCard:
    """Computes on the host what a card would; times are made up: the later tried, the faster."""

    def __init__(self, wrong: str = "", broken: str = "") -> None:
        self.spent, self._wrong, self._broken = False, wrong, broken
        self._us, self._lib = 100.0, HostLibrary()
        self.tried: list[str] = []

    def beside(self, subjects: Any, rivals: Any, plan: Plan) -> tuple[Measurement, ...]:
        runs = [
            Simulator(H200).run(each.program, each.inputs, Checks(races=False, uninitialised=False)).outputs
            for each in subjects
        ]
        return tuple(self._measured(outputs, plan) for outputs in (*runs, *map(self._ran, rivals)))

    def routine(self, make: Any, reference_us: float, plan: Plan) -> Measurement:
        assert reference_us > 0
        return self._measured(self._ran(make), plan)

    def _ran(self, make: Any) -> Any:
        subject = make(HostCard(), HostCache(), 1)
        subject.enqueue(0)
        return subject.outputs(0)

    def _measured(self, outputs: Any, plan: Plan) -> Measurement:
        if self.tried[-1] == self._broken:
            self.spent = True
            raise TimingError(Execution({}, {}, (), "time"))
        self._us -= 1.0
        y = outputs["Y"] + (1.0 if self.tried[-1] == self._wrong else 0.0)
        return Measurement(
            self._us, self._us, self._us, (self._us,) * (plan.blocks * plan.per_block), outputs=({"Y": y},)
        )


def row_of(card: FakeCard, n: int = 8, left_out: dict[str, str] | None = None) -> dict[str, Any]:
    mask = random_mask(40, 30, 0.1)
    at = bench.Bench(H200, card, HostLibrary(), card.tried.append)
    return at.row("a", mask, SparseWeights(mask), n, left_out)


@pytest.mark.parametrize("n", [1, 8])
def test_the_fastest_of_both_sides_are_compared(n: int) -> None:
    row = row_of(FakeCard(), n)
    seeds = {name: found["us"] for name, found in row["seeds"].items()}
    assert len(seeds) > 6
    assert row["best_seed"] == min(seeds, key=lambda name: seeds[name])
    theirs = {name: found["us"] for name, found in row["cusparse"].items()}
    assert len(theirs) == (6 if n == 1 else 7)
    assert row["best_cusparse"] == min(theirs, key=lambda name: theirs[name])
    assert row["library"] == "12.5.8"
    assert row["speedup"]["value"] == pytest.approx(row["best_cusparse_us"] / row["best_us"])
    assert ("cusparse/coo_alg3" in row["left_out"]) == (n == 8)  # this library does not have it


def test_settings_of_a_sweep_have_times_or_the_reason_why_not() -> None:
    card, mask = FakeCard(wrong="spmm/csr_rows TX=4"), random_mask(40, 30, 0.1)
    at = bench.Bench(H200, card, HostLibrary(), card.tried.append)
    variants = variants_of([["spmm/csr_rows", "TX=4,8"], ["spmv/csr_vector"], ["spmm/csr_rows", "TX=8,16"]])
    rows = list(at.settings("a", mask, SparseWeights(mask), 8, variants))
    found = {(row["sweep"], row["params"].get("TX")): row for row in rows}
    assert len(found) == len(rows) == 4
    assert found["spmm/csr_rows", 4]["left_out"].startswith("wrong")
    assert found["spmv/csr_vector", None]["left_out"] == "no seed for so many columns"
    assert found["spmm/csr_rows", 16]["us"] < found["spmm/csr_rows", 8]["us"]


def test_a_hopeless_seed_is_not_tried_at_the_next_n_but_cusparse_is() -> None:
    row = {"N": 8, "seeds": {"a": {"us": 2.0}, "b": {"us": 8.0}, "c": {"us": 8.2}}, "cusparse": {"d": {"us": 99.0}}}
    assert bench.hopeless(row) == {"c": "4.1 times the fastest seed at N = 8"}
    assert bench.hopeless({"N": 8, "seeds": {"a": {"launches": 1}}}) == {}


@pytest.mark.parametrize("wrong", ["spmm/sell_slices", "cusparse/coo_alg4"])
def test_a_wrong_result_has_no_time(wrong: str) -> None:
    row = row_of(FakeCard(wrong=wrong))
    assert row["left_out"][wrong].startswith("wrong: row")
    assert wrong.removeprefix("cusparse/") not in {**row["seeds"], **row["cusparse"]}
    assert wrong.removeprefix("cusparse/") not in (row["best_seed"], row["best_cusparse"])
    assert "speedup" in row


def test_what_is_timed_together_is_checked_again() -> None:
    row = row_of(FakeCard(wrong=bench.TOGETHER))
    assert row["left_out"][bench.TOGETHER].startswith("wrong: row")
    assert "speedup" not in row


def test_a_subject_that_breaks_the_card_is_named_and_left_out_the_next_time() -> None:
    with pytest.raises(bench.BrokenError) as broken:
        row_of(FakeCard(broken="spmm/csr_warp"))
    assert broken.value.title == "spmm/csr_warp"
    row = row_of(FakeCard(broken="spmm/csr_warp"), left_out={"spmm/csr_warp": "it hung"})
    assert row["left_out"]["spmm/csr_warp"] == "it hung"
    assert "speedup" in row


# -- children, and what is done ahead ---------------------------------------------------------------------------------

CHILD = """
import json, os, sys, time
from pathlib import Path
asked = json.loads(sys.argv[1])
rows = [json.loads(line) for line in open(asked["out"])] if os.path.exists(asked["out"]) else []
say = lambda **line: print(json.dumps(line), flush=True)
row = lambda n: say(row={"matrix": "a", "N": n, "seeds": {}, "cusparse": {}, "left_out": {}, "seconds": 0.1})
say(busy="something")
if not rows:
    row(1)
    say(at=["a", 8, "spmm/hangs"])
    time.sleep(60)
if len(rows) == 2:
    say(at=["a", 8, "spmm/crashes"])
    os.abort()
if len(rows) == 3:
    say(at=["a", 8, "spmm/x"])
    say(broken=["a", 8, "spmm/breaks", "out of bounds"])
    time.sleep(60)
row(8)
"""


def asked_of(out: Path, **changes: Any) -> child.Asked:
    given: dict[str, Any] = {
        "out": str(out), "folder": None, "generated": True, "only": (), "least": None, "columns": (1, 8), "gpu": "H200",
        "minutes": 1.0, "dry": True,
    }  # fmt: skip
    return child.Asked(**(given | changes))


def test_a_child_that_hangs_crashes_or_gives_up_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert measure.measure(asked_of(out), command=(sys.executable, "-c", CHILD), silence_s=1.0)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row.get("broken", row["N"]) for row in rows] == [1, "spmm/hangs", "spmm/crashes", "spmm/breaks", 8]
    known = child.Known(out)
    assert known.done == {("a", 1), ("a", 8)}
    assert set(known.broken[("a", 8)]) == {"spmm/hangs", "spmm/crashes", "spmm/breaks"}
    assert "out of bounds" in known.broken[("a", 8)]["spmm/breaks"]
    assert len(summary.latest(rows)) == 2


def test_a_child_that_cannot_begin_is_not_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit(4)")
    assert not measure.measure(asked_of(tmp_path / "out.jsonl"), command=command)
    assert "ended with 4" in capsys.readouterr().err


def test_a_child_ends_when_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_LAST_S", 0.5)
    said = "import json, time\nwhile True: print(json.dumps({'busy': ''}), flush=True); time.sleep(0.05)"
    assert measure.measure(asked_of(tmp_path / "out.jsonl", minutes=0.01), command=(sys.executable, "-c", said))


def test_wherever_time_ends_every_folder_had_its_share() -> None:
    sizes = {f"many/{i}": 10 + i for i in range(8)} | {"few/a": 5, "few/b": 50}
    order = ahead._fairly(sizes)
    assert order == ["many/7", "many/6", "few/b", "many/5", "many/4", "many/3", "many/2", "few/a", "many/1", "many/0"]
    assert all(job.folder is None for job in ahead.jobs_of(None, generated=True, only=(), least=None))
    every = ahead.jobs_of(DATA, generated=True, only=(), least=None)
    parts = [ahead.jobs_of(DATA, generated=True, only=(), least=None, part=(i, 3)) for i in (1, 2, 3)]
    assert [job for some in itertools.zip_longest(*parts) for job in some if job is not None] == every
    assert [job.name for job in ahead.jobs_of(DATA, generated=False, only=("swin",), least=None)] == [
        "gunrock/swin_tiny_layers0_attn_proj_u50.smtx.gz"
    ]


def test_of_a_folder_with_an_index_only_what_is_to_be_measured() -> None:
    names = {job.name for job in ahead.jobs_of(DATA, generated=False, only=(), least=None)}
    with (DATA / "INDEX.tsv").open() as index:
        roles = {line.split("\t")[0]: line.split("\t")[1] for line in index}
    assert names == {name for name, role in roles.items() if role == "bench"}


def test_it_says_all_the_while_that_seeds_are_compiled() -> None:
    """A child that says nothing until the last one is compiled is taken to hang."""
    with ahead.Ahead(workers=1) as made:
        left = list(made.compile_all((8,), "sm_90a"))
    assert left[-1] == 0
    assert len(left) > 1


def test_matrices_are_made_ready_in_order_and_the_unreadable_left_out(tmp_path: Path) -> None:
    (tmp_path / "bad.mtx").write_text("%%MatrixMarket nonsense\n")
    jobs = [(ahead.Job("bad.mtx", tmp_path), (8,)), (ahead.Job("cugraph/dolphins.mtx.gz", DATA), (1, 8))]
    with ahead.Ahead(workers=1, count=1) as made:
        found = [(job.name, ready) for (job, _), ready in made.prepare(jobs) if ready is not None]
    assert [name for name, _ in found] == ["bad.mtx", "cugraph/dolphins.mtx.gz"]
    assert "bad.mtx:1" in str(found[0][1])
    ready = found[1][1]
    assert isinstance(ready, ahead.Prepared)
    assert ready.mask.nnz == 318
    packed = dict(ready.weights._packed)
    made_operands = SparseOperands(bench.task_of(ready.mask, 8), ready.weights, np.zeros((62, 8), np.float32))
    for kernel in (kernel for _, kernel in bench.kernels_of(made_operands.task) if isinstance(kernel, Kernel)):
        with contextlib.suppress(FormatError):
            case_of(made_operands.task, made_operands, kernel.format, seed=0, data="normal", gpu=H200)  # type: ignore[arg-type]
    assert dict(ready.weights._packed) == packed  # nothing was left to pack while a card waits


# -- generated matrices -----------------------------------------------------------------------------------------------


def dense(mask: Mask) -> Any:
    return mask.window(slice(None), slice(None))


def test_generated_matrices_are_what_they_are_called() -> None:
    cube = dense(generated.stencil(5))
    assert cube.sum() == 125 + 6 * 5 * 5 * 4
    assert (cube == cube.T).all()
    band = dense(generated.banded(80, 3, 0.5))
    places = np.nonzero(band)
    assert np.abs(places[0] - places[1]).max() == 3
    blocks = dense(generated.block_diagonal(4, 8))
    assert (blocks == (np.kron(np.eye(4), np.ones((8, 8))) > 0)).all()
    near = dense(generated.geometric(400, 12.0))
    assert (near == near.T).all()
    assert 8 < near.sum() / 400 < 13
    graph = generated.rmat(10, 8)
    assert graph.shape == (1024, 1024)
    assert graph.row_counts.max() > 20 * graph.row_counts.mean() / 2
    assert generated.rmat(10, 8).nnz == graph.nnz


def test_names_say_how_many_nonzeros() -> None:
    make, arguments = generated.GENERATED["stencil_1m"]
    assert make(*arguments).nnz == pytest.approx(1.2e6, rel=0.2)


# -- cuSPARSE ---------------------------------------------------------------------------------------------------------


class HostCard:
    """Memory of the host as the card's, so that a library that computes on the host can be handed addresses."""

    stream = 7

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}

    def allocate(self, size: int) -> int:
        buffer = np.full(size, 0xEE, np.uint8)
        self.held[buffer.ctypes.data] = buffer
        return buffer.ctypes.data

    def free(self, address: int) -> None:
        del self.held[address]

    def download(self, address: int, size: int) -> Any:
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size,)).copy()


class HostLibrary:
    """The part of cuSPARSE's interface that is used, computing on the host: right only if every argument is."""

    def __init__(self) -> None:
        self.things: dict[int, Any] = {}
        self.stream: int | None = None

    def _new(self, out: Any, thing: Any) -> int:
        handle = len(self.things) + 1
        self.things[handle] = thing
        out._obj.value = handle
        return 0

    def _drop(self, handle: Any) -> int:
        self.things[handle.value] = None
        return 0

    cusparseDestroy = cusparseDestroySpMat = cusparseDestroyDnMat = cusparseDestroyDnVec = _drop  # noqa: N815

    @staticmethod
    def _array(address: Any, dtype: Any, count: int) -> Any:
        kind: Any = {np.int32: ctypes.c_int32, np.float32: ctypes.c_float}[dtype]
        return np.ctypeslib.as_array(ctypes.cast(address.value, ctypes.POINTER(kind)), (count,))

    def cusparseGetProperty(self, place: int, value: Any) -> int:  # noqa: N802
        value._obj.value = (12, 5, 8)[place]
        return 0

    def cusparseCreate(self, out: Any) -> int:  # noqa: N802
        return self._new(out, "handle")

    def cusparseSetStream(self, _: Any, stream: Any) -> int:  # noqa: N802
        self.stream = stream.value
        return 0

    def cusparseCreateCsr(self, out: Any, m: Any, k: Any, nnz: Any, ptr: Any, col: Any, val: Any, *types: int) -> int:  # noqa: N802
        assert types == (2, 2, 0, 0)
        parts = (self._array(val, np.float32, nnz.value), self._array(col, np.int32, nnz.value))
        w = csr_array((*parts, self._array(ptr, np.int32, m.value + 1)), shape=(m.value, k.value))
        return self._new(out, w.toarray())

    def cusparseCreateCoo(self, out: Any, m: Any, k: Any, nnz: Any, row: Any, col: Any, val: Any, *types: int) -> int:  # noqa: N802
        assert types == (2, 0, 0)
        w = np.zeros((m.value, k.value), np.float32)
        w[self._array(row, np.int32, nnz.value), self._array(col, np.int32, nnz.value)] = self._array(
            val, np.float32, nnz.value
        )
        return self._new(out, w)

    def cusparseCreateSlicedEll(  # noqa: N802
        self, out: Any, m: Any, k: Any, nnz: Any, slots: Any, rows: Any, ptr: Any, col: Any, val: Any, *types: int
    ) -> int:
        assert types == (2, 2, 0, 0)
        w = np.zeros((m.value, k.value), np.float32)
        starts = self._array(ptr, np.int32, -(-m.value // rows.value) + 1)
        columns, values = self._array(col, np.int32, slots.value), self._array(val, np.float32, slots.value)
        for i, (first, last) in enumerate(itertools.pairwise(starts)):
            for slot in range(first, last):
                if columns[slot] >= 0:
                    w[i * rows.value + (slot - first) % rows.value, columns[slot]] = values[slot]
        assert np.count_nonzero(w) == nnz.value
        return self._new(out, w)

    def cusparseCreateDnVec(self, out: Any, size: Any, address: Any, dtype: int) -> int:  # noqa: N802
        assert dtype == 0
        return self._new(out, self._array(address, np.float32, size.value))

    def cusparseCreateDnMat(self, out: Any, rows: Any, columns: Any, ld: Any, address: Any, *types: int) -> int:  # noqa: N802
        assert types == (0, 2)
        assert ld.value == columns.value
        flat = self._array(address, np.float32, rows.value * columns.value)
        return self._new(out, flat.reshape(rows.value, columns.value))

    def _size(self, *arguments: Any) -> int:
        arguments[-1]._obj.value = 100
        return 0

    def _none(self, *_: Any) -> int:
        return 0

    cusparseSpMM_bufferSize = cusparseSpMV_bufferSize = _size  # noqa: N815
    cusparseSpMM_preprocess = cusparseSpMV_preprocess = _none  # noqa: N815

    def cusparseSpMM(self, handle: Any, op_a: int, op_b: int, *rest: Any) -> int:  # noqa: N802
        assert op_b == 0
        return self.cusparseSpMV(handle, op_a, *rest)

    def cusparseSpMV(  # noqa: N802
        self, handle: Any, op: int, alpha: Any, w: Any, x: Any, beta: Any, y: Any, dtype: int, alg: int, scratch: Any
    ) -> int:
        assert (self.things[handle.value], op, alpha._obj.value, beta._obj.value, dtype) == ("handle", 0, 1.0, 0.0, 0)
        assert scratch.value
        if alg == 3 and self.things[x.value].ndim == 2:
            return 10  # as a library that does not have it
        self.things[y.value][...] = self.things[w.value] @ self.things[x.value]
        return 0


class HostCache:
    """Two operand sets in host memory."""

    def get(self, inputs: Inputs) -> Any:
        copies = [{name: array.copy() for name, array in inputs.buffers.items()} for _ in range(2)]
        addresses = tuple({name: array.ctypes.data for name, array in copy.items()} for copy in copies)
        return SimpleNamespace(addresses=addresses, held=copies)

    def intact(self, _: Any) -> bool:
        return True


def routine(name: str, n: int, card: HostCard, lib: HostLibrary) -> tuple[cusparse.Routine, SparseOperands]:
    made = made_of(random_mask(), n)
    storage = (cusparse.SPMV if n == 1 else cusparse.SPMM)[name][0]
    options = {"c": "32", "sigma": "1"} if storage == "sell" else {}
    case = case_of(made.task, made, FormatChoice(storage, options), seed=0, data="normal", gpu=H200)  # type: ignore[arg-type]
    shape = (90, 70, n)
    return cusparse.Routine(lib, name, case.inputs, shape, made.nnz, card, HostCache(), 3), made  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "n"), [*((name, 1) for name in cusparse.SPMV), *((n, 8) for n in cusparse.SPMM if n != "coo_alg3")]
)
def test_every_routine_hands_over_the_right_arguments(name: str, n: int) -> None:
    card, lib = HostCard(), HostLibrary()
    subject, made = routine(name, n, card, lib)
    assert lib.stream == card.stream
    for run in range(3):
        subject.enqueue(run)
        assert made.wrong(subject.outputs(run)["Y"]) == ""
    subject.close()
    assert not card.held
    assert not any(thing is not None for thing in lib.things.values())


def test_what_the_library_cannot_do_is_said() -> None:
    subject, _ = routine("coo_alg3", 8, HostCard(), HostLibrary())
    with pytest.raises(cusparse.CusparseError, match="cusparseSpMM: cusparseStatus 10"):
        subject.enqueue(0)


# -- summing up -------------------------------------------------------------------------------------------------------


def rows_of(*speedups: tuple[str, int, float]) -> list[dict[str, Any]]:
    return [
        {
            "matrix": m,
            "N": n,
            "speedup": {"value": v},
            "best_seed": "spmm/a",
            "best_cusparse": "csr_alg1",
            "left_out": {},
        }
        for m, n, v in speedups
    ]


def test_the_summary_is_a_geometric_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(("a", 8, 4.0), ("b", 8, 1.0), ("a", 32, 0.5))
    rows.append({"matrix": "c", "N": 8, "left_out": {"spmm/x": "wrong: row 3"}})
    out = tmp_path / "out.jsonl"
    out.write_text("\n".join(map(json.dumps, rows)))
    summary.main([str(out), "--plot", str(tmp_path)])
    text = capsys.readouterr().out
    assert "N = 8    geometric mean 2.000x over 2 matrices, faster on 1" in text
    assert "all: geometric mean 1.260x over 3 products" in text
    assert "WRONG spmm/x: wrong: row 3" in text
    assert (tmp_path / "matrices.png").exists()
    assert len((tmp_path / "matrices.csv").read_text().splitlines()) == 4


def test_the_summary_of_a_sweep_ranks_settings_by_seed() -> None:
    taken = [("a", 8, 4, 2.0), ("a", 8, 8, 1.0), ("a", 32, 4, 1.0), ("a", 32, 8, 8.0), ("a", 32, 16, 1.0)]
    rows = [{"matrix": m, "N": n, "sweep": "spmm/x", "params": {"TX": tx}, "us": us} for m, n, tx, us in taken]
    rows += [
        {"matrix": "b", "N": 8, "sweep": "spmm/x", "params": {"TX": 4}, "left_out": "wrong"},
        *rows_of(("a", 8, 4.0)),
    ]
    assert summary.sweep_lines(rows) == [
        "spmm/x: times its fastest setting, mean over 2 products, then by N = [8, 32]",
        "  1.000  nan 1.000  TX=16 (1 products)",
        "  1.414  2.000 1.000  TX=4",
        "  2.828  1.000 8.000  TX=8",
    ]
    assert len(summary.latest(rows)) == 1
