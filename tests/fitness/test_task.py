"""Tasks: identity, costs by hand, shapes within the domain."""

from __future__ import annotations

import pickle

import pytest

from fitness.kernel import FormatChoice, parse_kernel
from fitness.task import HIDDEN_SHAPES, Task, TaskError
from tests.fitness.cases import H200, gemm_task, nm24_task

LARGE = {"M": 4096, "K": 4096, "N": 256}


def test_fields_and_defaults() -> None:
    task = nm24_task()
    assert (task.op, task.dtype, task.out_dtype, task.acc) == ("spmm", "float16", "float16", "float32")
    assert (task.x_layout, task.y_layout, task.free) == ("col", "col", ("N",))
    assert [condition.text for condition in task.domain] == ["K % 64 == 0"]
    assert (task.seeds, task.baseline, task.baseline_seed) == (("spmm/nm24_*",), "auto", "gemm/dense_mma_pipelined")
    assert gemm_task().seeds == ("gemm/dense_*",)
    assert nm24_task(pattern={"kind": "nm", "n": 4, "m": 8}).seeds == ("spmm/nm_*", "gemm/dense_*")
    assert nm24_task(baseline="my/seed").baseline_seed == "my/seed"


def test_fingerprint_is_of_what_is_computed() -> None:
    task = nm24_task()
    assert task.fingerprint == nm24_task(seeds=["other"], baseline="b").fingerprint
    assert task == pickle.loads(pickle.dumps(task))
    assert hash(task) == hash(nm24_task())
    changes: list[dict[str, object]] = [
        {"dtype": "bfloat16"},
        {"y_layout": "row"},
        {"shapes": [LARGE]},
        {"domain": ["K % 128 == 0"]},
        {"free": ["N", "M"]},
        {"tolerance": {"tau": 1e-4, "frobenius": 1e-3}},
        {"pattern": {"kind": "nm", "n": 1, "m": 4}},
    ]
    prints = {nm24_task(**change).fingerprint for change in changes}
    assert len(prints | {task.fingerprint}) == len(changes) + 1


def test_costs_by_hand() -> None:
    task = nm24_task()
    nnz = 4096 * 4096 / 2
    assert task.nnz(LARGE) == nnz
    assert task.flops(LARGE) == 2 * nnz * 256
    assert task.minimal_bytes(LARGE) == nnz * 2 + nnz / 4 + 2 * 4096 * 256 * 2
    memory_us = task.minimal_bytes(LARGE) / (H200.bandwidth_gb_per_s * 1e3)
    compute_us = task.flops(LARGE) / (H200.tflops["float16"] * 1e6)
    assert task.floor_us(LARGE, H200) == pytest.approx(H200.launch_us + max(memory_us, compute_us))
    assert gemm_task().minimal_bytes({"M": 3, "N": 5, "K": 7}) == 2 * (21 + 35 + 15)


def test_supports() -> None:
    assert nm24_task().supports("nm24")
    assert nm24_task().supports("dense")
    assert not gemm_task().supports("nm24")
    assert "nonzeros" in gemm_task().unsupported("nm24")
    assert "1:2" in nm24_task(dtype="float32").unsupported("nm24")
    assert not nm24_task(pattern={"kind": "nm", "n": 3, "m": 4}).supports("nm24")
    assert nm24_task(pattern={"kind": "nm", "n": 1, "m": 4}).supports("nm24")


def test_argument_names() -> None:
    names = nm24_task().argument_names("nm24")
    assert names[:4] == ("W.values", "W.meta", "X", "Y")
    assert {"M", "N", "K", "ldx", "ldy"} <= set(names)
    assert "W.meta" not in nm24_task().argument_names("dense")


def test_leading_dimensions_follow_the_layouts() -> None:
    shape = {"M": 3, "N": 5, "K": 7}
    assert gemm_task().expression_names(shape) == {**shape, "ldx": 7, "ldy": 3}
    assert gemm_task(x_layout="row", y_layout="row").expression_names(shape) == {**shape, "ldx": 5, "ldy": 5}


@pytest.mark.parametrize("task", [nm24_task(), gemm_task(), nm24_task(domain=["N % 8 == 0", "M % 16 == 0"])])
def test_all_shapes_are_in_the_domain(task: Task) -> None:
    hidden = [shape for seed in range(20) for shape in task.hidden_shapes(seed)]
    for shape in (*task.small_shapes(), *task.full_shapes(), *hidden):
        assert task.in_domain(shape), shape


def test_small_shapes_exercise_what_matters() -> None:
    for task in (nm24_task(), gemm_task()):
        shapes = task.small_shapes()
        assert any(s["N"] == 1 for s in shapes)
        assert any(s["M"] % 16 and s["N"] % 8 for s in shapes)
        assert any(s["M"] > 128 for s in shapes)
        assert any(s["N"] > 32 for s in shapes)
        assert any(s["K"] > 512 for s in shapes)
        assert all(s["M"] * s["N"] * s["K"] <= 650_000 for s in shapes), "each is simulated for every child"
    assert any(s["K"] % 8 for s in gemm_task().small_shapes())


def test_hidden_shapes_vary_only_what_is_free() -> None:
    task = nm24_task(shapes=[LARGE, {**LARGE, "N": 16}])
    shapes = [shape for seed in range(50) for shape in task.hidden_shapes(seed)]
    assert len(shapes) == 50 * HIDDEN_SHAPES
    assert {shape["M"] for shape in shapes} == {shape["K"] for shape in shapes} == {4096}
    sizes = {shape["N"] for shape in shapes}
    assert min(sizes) < 8
    assert 256 < max(sizes) <= 512
    assert any(size % 2 for size in sizes)
    assert all(task.hidden_shapes(seed)[0]["N"] > 256 for seed in range(20)), "gate 5 looks beyond the listed sizes"
    assert task.hidden_shapes(3) == nm24_task(shapes=[LARGE, {**LARGE, "N": 16}]).hidden_shapes(3)


def test_errors_survive_pickling() -> None:
    with pytest.raises(TaskError) as caught:
        Task.from_spec({})
    assert pickle.loads(pickle.dumps(caught.value)).errors == caught.value.errors


def test_the_task_tells_the_prelude_what_differs_from_its_defaults() -> None:
    assert nm24_task().defines == ()
    fused = gemm_task(dtype="bfloat16", out_dtype="float32", y_layout="row", epilogue=["bias", "relu"])
    assert fused.defines == (
        "-DEVO_IN=EVO_BFLOAT16",
        "-DEVO_OUT=EVO_FLOAT32",
        "-DEVO_Y_ROW=1",
        "-DEVO_EPILOGUE=.bias().relu()",
    )
    assert gemm_task(dtype="float32").defines == ("-DEVO_IN=EVO_FLOAT32",)


def test_an_epilogue_is_part_of_what_is_computed() -> None:
    plain, fused = gemm_task(), gemm_task(epilogue=["bias", "residual"])
    assert plain.fingerprint != fused.fingerprint
    shape = plain.shapes[0]
    assert fused.minimal_bytes(shape) - plain.minimal_bytes(shape) == 2 * shape["M"] * (1 + shape["N"])


@pytest.mark.parametrize(
    ("chain", "message"),
    [("bias", "not a list"), (["bais"], "did you mean 'bias'"), (["relu", "silu"], "two activations")],
)
def test_senseless_epilogues_are_refused(chain: object, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        gemm_task(epilogue=chain)


def test_the_baseline_computes_the_same() -> None:
    assert gemm_task().baseline_seed == "gemm/dense_mma_pipelined"
    assert gemm_task(epilogue=["bias"]).baseline_seed == "gemm/fused_mma"
    assert gemm_task(dtype="bfloat16").baseline_seed == "gemm/fused_mma"
    assert gemm_task(x_layout="row").baseline_seed == "gemm/fused_mma"
    assert gemm_task(dtype="float32").baseline_seed == "gemm/fused_tiled"
    assert gemm_task(baseline="gemm/dense_naive").baseline_seed == "gemm/dense_naive"


def test_seeds_by_pattern() -> None:
    def seeds(**pattern: object) -> tuple[str, ...]:
        return nm24_task(pattern=pattern, shapes=[{"M": 128, "K": 128, "N": 16}]).seeds

    assert seeds(kind="block", shape=[32, 32], density=0.2) == ("spmm/bsr_*", "spmm/blocked_ell_*")
    assert seeds(kind="power_law", density=0.1) == ("spmm/csr_*",)
    assert seeds(kind="rows", density=0.5) == ("spmm/rows_*", "spmm/csr_*")
    assert seeds(kind="channels", density=0.5) == ("spmm/channels_*", "spmm/csr_*")
    assert seeds(kind="banded", bandwidth=3) == ("spmm/dia_*", "spmm/csr_*")
    assert seeds(kind="periodic", shape=[8, 32], density=0.1) == ("spmm/periodic_*", "spmm/csr_*")
    assert seeds(kind="dense") == ("gemm/dense_*",)
    assert gemm_task(epilogue=["bias"]).seeds == ("gemm/fused_*",)


def test_a_kernel_written_for_another_type_or_layout_is_rejected() -> None:
    candidate = parse_kernel(
        '/*---\nformat = "dense"\ndtypes = ["float16"]\nout_dtypes = ["float16"]\nlayouts = ["col"]\n'
        '[[launch]]\nkernel = "gemm"\ngrid = [1]\nblock = [32]\nargs = ["Y", "bias", "scale"]\n---*/\n'
    )
    assert not gemm_task().domain_violations(candidate)
    for changes, key in (({"out_dtype": "float32"}, "out_dtypes"), ({"y_layout": "row"}, "layouts")):
        (finding,) = gemm_task(**changes).domain_violations(candidate)
        assert finding.kind == "other_task"
        assert finding.message.startswith(f"{key}: ")


def test_options_decide_whether_a_format_fits() -> None:
    task = nm24_task(pattern={"kind": "nm", "n": 4, "m": 8})
    assert task.supports(FormatChoice("nm", {"ratio": "4:8"}))
    assert "2:4 allows 2" in task.unsupported(FormatChoice("nm", {"ratio": "2:4"}))


def test_a_ratio_that_a_thin_pattern_happens_to_keep_is_not_relied_on() -> None:
    task = nm24_task(pattern={"kind": "random", "density": 1e-4}, x_layout="col", y_layout="col")
    assert "need not keep to 2 of every 4 along K" in task.unsupported("nm24")
    assert "need not keep to 8 of every 16" in task.unsupported(FormatChoice("nm", {"ratio": "8:16"}))
    assert not nm24_task().unsupported(FormatChoice("nm", {"ratio": "8:16"}))
