"""The benchmark over matrices, as far as it goes without a card: operands, checks, arguments, what it sums up."""

from __future__ import annotations

import ctypes
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks.matrices import cusparse, generated, measure, summary
from benchmarks.matrices.operands import SparseOperands, SparseWeights
from fitness import gpu as gpus
from fitness.devices.device import FULL_CHECKS, Inputs
from fitness.devices.simulator.simulator import Simulator
from fitness.formats import FormatError
from fitness.inputs import case_of
from fitness.kernel import FormatChoice, Kernel, load_kernel
from fitness.matrices import Mask
from seeds import seed_paths
from tests.fitness.matrices.test_mask import mask_of

H200 = gpus.load("H200")
DATA = Path(__file__).parents[1] / "data" / "matrices"


def made_of(mask: Mask, n: int) -> SparseOperands:
    x = np.random.default_rng(n).standard_normal((mask.shape[1], n), dtype=np.float32)
    return SparseOperands(measure.task_of(mask, n), SparseWeights(mask), x)


def random_mask(rows: int = 90, columns: int = 70, density: float = 0.08) -> Mask:
    return mask_of(np.random.default_rng(0).random((rows, columns)) < density)


@pytest.mark.parametrize("seed", ["spmm/csr_vector", "spmm/coo_segments", "spmm/sell_slices", "spmv/csr_vector"])
def test_seeds_compute_what_is_checked(seed: str) -> None:
    made = made_of(random_mask(), 1 if seed.startswith("spmv") else 9)
    found = measure.program_of(load_kernel(seed_paths(seed)[0]), made, H200)
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
        found = dict(measure.kernels_of(measure.task_of(random_mask(), n)))
        assert len(found) == len(seed_paths("spmm/*")) + (len(seed_paths("spmv/*")) if n == 1 else 0)
        assert sum(isinstance(kernel, Kernel) for kernel in found.values()) > 6
        assert all(kernel for kernel in found.values())


def test_a_dry_run_resolves_everything_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    arguments = [str(out), str(DATA), "--only", "swin", "--columns", "1", "8", "--dry-run"]
    measure.main(arguments)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["N"], row["nnz"]) for row in rows] == [(1, 4608), (8, 4608)]
    assert len(rows[0]["seeds"]) > 6
    assert set(rows[0]["cusparse"]) == set(cusparse.SPMV)
    assert set(rows[1]["cusparse"]) == set(cusparse.SPMM)
    measure.main(arguments)
    assert len(out.read_text().splitlines()) == 2
    assert "left out" in capsys.readouterr().out


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        measure.main([str(tmp_path / "out.jsonl")])


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
