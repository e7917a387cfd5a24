"""Names of baselines, the fastest per shape; the routines themselves need PyTorch and a card."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fitness.baselines import BASELINES, VENDORS, BaselineTimes, Given, NotApplicableError, fastest, routine
from fitness.baselines.cusparse import blocked_ell
from fitness.baselines.routines import cusparselt, torch_bsr
from fitness.gpu import load
from fitness.inputs import make_case
from fitness.kernel import FormatChoice
from fitness.outcome import Timing
from fitness.registry import UnknownNameError
from fitness.task import Task
from tests.fitness.fakes import gemm_task


def times(*us: float) -> tuple[Timing, ...]:
    return tuple(Timing({"N": n}, "measured", t, t, t, 1.0, 1.0, 1.0) for n, t in enumerate(us))


def product(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(x @ w.T)


def test_every_baseline_can_be_found() -> None:
    assert set(VENDORS) <= set(BASELINES)
    assert all(callable(routine(name)) for name in BASELINES)
    with pytest.raises(UnknownNameError, match="cublas"):
        routine("cublass")


def test_a_dotted_name_is_the_users_own() -> None:
    run = routine(f"{__name__}:product")(Given(gemm_task(), np.ones((4, 3)), np.ones((2, 3))))
    np.testing.assert_array_equal(run(), np.full((2, 4), 3.0))


def test_the_fastest_is_taken_per_shape() -> None:
    found = fastest([BaselineTimes("a", times(5, 9)), BaselineTimes("b", times(6, 8)), BaselineTimes("c", (), "no")])
    assert found is not None
    assert found[0] == "a, b"
    assert [timing.time_us for timing in found[1]] == [5, 8]
    alone = fastest([BaselineTimes("a", times(5, 9))])
    assert alone is not None
    assert alone[0] == "a"
    assert fastest([BaselineTimes("c", (), "no")]) is None


def test_routines_of_blocks_want_a_block_pattern() -> None:
    task = gemm_task()
    for name in ("cusparse_bsr", "cusparse_blocked_ell"):
        with pytest.raises(NotApplicableError, match="block patterns"):
            routine(name)(Given(task, np.ones((64, 64), np.float16), np.ones((8, 64), np.float16)))


def test_blocked_ell_holds_the_matrix() -> None:
    torch = pytest.importorskip("torch")
    w = torch.zeros(32, 48)
    w[0:16, 16:32] = 2.0
    w[3, 40] = 5.0
    indices, values = blocked_ell(w, 16)
    assert indices.tolist() == [[1, 2], [-1, -1]]
    back = torch.zeros_like(w)
    for row, columns in enumerate(indices.tolist()):
        for place, column in enumerate(columns):
            if column >= 0:
                block = values[16 * row : 16 * row + 16, 16 * place : 16 * place + 16]
                back[16 * row : 16 * row + 16, 16 * column : 16 * column + 16] = block
    assert torch.equal(back, w)


def test_what_does_not_apply_says_so() -> None:
    fused = Task.from_spec(
        {"op": "gemm", "dtype": "float16", "shapes": [{"M": 64, "N": 8, "K": 64}], "epilogue": ["bias"]}
    )
    nothing = np.ones(1)
    for prepare in (cusparselt, torch_bsr):
        with pytest.raises(NotApplicableError, match="epilogue"):
            prepare(Given(fused, nothing, nothing))


def fused_task(epilogue: Sequence[str], layout: str = "col") -> Task:
    spec = {"op": "gemm", "dtype": "float32", "shapes": [{"M": 24, "N": 8, "K": 16}], "epilogue": list(epilogue)}
    return Task.from_spec({**spec, "x_layout": layout, "y_layout": layout})


@pytest.mark.parametrize(
    ("name", "epilogue", "layout"),
    [
        ("eager", ["bias", "gelu", "residual", "scale"], "col"),
        ("eager", ["residual", "silu", "bias"], "row"),
        ("eager", ["bias", "gelu_tanh"], "row"),
        ("cublaslt", ["bias"], "col"),
        ("cublaslt", ["bias", "relu"], "col"),
    ],
)
def test_epilogues_are_those_of_the_task(name: str, epilogue: list[str], layout: str) -> None:
    torch = pytest.importorskip("torch")
    task = fused_task(epilogue, layout)
    case = make_case(task, task.shapes[0], FormatChoice("dense"), seed=3, data="normal", gpu=load("H200"))
    tensors = {key: torch.from_numpy(array.copy()) for key, array in case.inputs.buffers.items()}
    given = Given(
        task,
        tensors["W.values"],
        tensors["X"],
        tensors["bias"] if "bias" in epilogue else None,
        tensors["residual"] if "residual" in epilogue else None,
        float(case.scalars["scale"]) if "scale" in epilogue else None,
    )
    found = routine(name)(given)().numpy()
    assert found.shape == case.inputs.outputs["Y"].shape
    np.testing.assert_allclose(case.logical({"Y": found}), case.reference, rtol=1e-4, atol=1e-4)


def test_what_a_library_cannot_fuse_is_not_its_baseline() -> None:
    pytest.importorskip("torch")
    nothing = np.ones(1)
    for epilogue in (["relu"], ["bias", "gelu"], ["bias", "relu", "residual"]):
        with pytest.raises(NotApplicableError, match="of epilogues it computes bias"):
            routine("cublaslt")(Given(fused_task(epilogue), nothing, nothing))
    with pytest.raises(NotApplicableError, match="without an epilogue"):
        routine("eager")(Given(gemm_task(), nothing, nothing))
