"""The whole evaluation on the simulator: honest kernels pass, each mutant fails at its gate for its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fitness.devices import open_device
from fitness.evaluate import Prepared, judge, prepare
from fitness.gpu import load
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Gate, Outcome, Timed
from fitness.task import Task
from seeds import seed_paths
from tests.fitness.fakes import DENSE, dense_kernel, gemm_task

SIMULATOR = open_device("simulator", load("H200"))
GEMM = gemm_task((256, 24, 256), (256, 40, 256))
SPMM = Task.from_spec(
    {
        "op": "spmm",
        "pattern": {"kind": "nm", "n": 2, "m": 4},
        "dtype": "float16",
        "shapes": [{"M": 512, "N": 16, "K": 512}, {"M": 512, "N": 64, "K": 512}],
        "free": ["N"],
    }
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path_factory.getbasetemp() / "simulator-cache"))


def judged(kernel: Kernel, task: Task = GEMM, steps: int = 5_000_000) -> Outcome:
    return judge(kernel, task, SIMULATOR, steps=steps)


@pytest.mark.parametrize("seed", ["nm24_mma_sp", "nm24_vector"])  # each one: tests/seeds
def test_seeds_are_timed(seed: str) -> None:
    (path,) = seed_paths(f"spmm/{seed}")
    outcome = judged(load_kernel(path), SPMM)
    assert isinstance(outcome, Timed), outcome.findings
    assert [timing.shape for timing in outcome.timings] == list(SPMM.shapes)
    assert all(timing.floor_us <= timing.time_us < 1e4 for timing in outcome.timings)
    assert outcome.clock == "modelled"
    assert outcome.resources.registers > 0


def test_a_verdict_depends_on_nothing_but_the_kernel() -> None:
    first, second = judged(dense_kernel()), judged(dense_kernel())
    assert isinstance(first, Timed)
    assert replace(first, cost=second.cost) == second
    prepared = prepare(dense_kernel(), GEMM, SIMULATOR)
    assert isinstance(prepared, Prepared)
    assert prepared.code_key == first.code_key


STORE = "Y[(long long)n * ldy + m] = __float2half(sum);"
LOOP = "for (int k = 0; k < K; k++)"


@pytest.mark.parametrize(
    ("old", "new", "kind", "gate", "reason"),
    [
        ("float sum = 0.0f;", "float sum = 0.0f; if (M > 0) return;", "WrongResult", Gate.SMALL_RUN, "stale"),
        (STORE, STORE.replace("sum", "0.0f"), "WrongResult", Gate.SMALL_RUN, "zeros"),
        (STORE, STORE.replace("sum", "sum * 0.0f / 0.0f"), "WrongResult", Gate.SMALL_RUN, "nan"),
        (LOOP, "for (int k = 0; k < K - 8; k++)", "WrongResult", Gate.SMALL_RUN, "missing k-slice"),
        (LOOP, "for (int k = M > 200; k < K; k++)", "WrongResult", Gate.CORRECTNESS, "missing k-slice"),
        ("float sum", "__half sum", "WrongResult", Gate.SMALL_RUN, "low-precision accumulation"),
        ("if (m >= M) return;", "if (m > M) return;", "SanitizerFinding", Gate.SMALL_RUN, None),
        ("if (m >= M) return;", "", "SanitizerFinding", Gate.SMALL_RUN, None),
        (LOOP, "for (int k = 0; k <= K; k++)", "SanitizerFinding", Gate.SMALL_RUN, None),
        (LOOP, "for (int k = 0; k < K; k += (sum != sum + 1e30f) ? 0 : 1)", "TimedOut", Gate.SMALL_RUN, "step_limit"),
        (STORE, "if (sum > 4) asm volatile(\"trap;\"); " + STORE, "Crashed", Gate.SMALL_RUN, None),
        (
            STORE,
            "__shared__ float t[2]; if (M < 0) t[threadIdx.x & 1] = sum; sum += t[1]; " + STORE,
            "SanitizerFinding", Gate.SMALL_RUN, None,
        ),
        (
            STORE,
            "__shared__ float t[BM]; t[threadIdx.x] = sum; sum += 0 * t[(threadIdx.x + 32) % BM]; " + STORE,
            "SanitizerFinding", Gate.SMALL_RUN, None,
        ),
    ],
)  # fmt: skip
def test_mutants(old: str, new: str, kind: str, gate: Gate, reason: str | None) -> None:
    source = DENSE.replace(old, new)
    assert source != DENSE
    if new.startswith("__half sum"):
        source = source.replace("= 0.0f;", "= __float2half(0.0f);").replace(
            "sum += __half2float(W[(long long)m * K + k]) * __half2float(X[(long long)n * ldx + k])",
            "sum = __hfma(W[(long long)m * K + k], X[(long long)n * ldx + k], sum)",
        ).replace("__float2half(sum)", "sum")  # fmt: skip
    outcome = judged(dense_kernel(source))
    assert (outcome.kind, outcome.stage) == (kind, gate), outcome.findings
    finding = outcome.findings[0]
    if reason is not None:
        assert reason in (finding.kind, finding.wrong.pattern if finding.wrong else "")
    if kind == "SanitizerFinding":
        assert finding.line is not None


def test_atomics_run_whole_and_need_a_cleared_output() -> None:
    split = (
        DENSE.replace('"N"]', '"N", "2"]')
        .replace("about ", "atomics = true\nabout ")
        .replace("__half* Y", "float* partial, __half* Y")
        .replace('"X", "Y"', '"X", "partial", "Y"')
        .replace("[params]", '[[workspace]]\nname = "partial"\nbytes = "4 * M * N"\ninit = "zero"\n\n'
                 '[[launch]]\nkernel = "finish"\ngrid = ["cdiv(M, BM)", "N"]\nblock = ["BM"]\n'
                 'args = ["partial", "Y", "M", "ldy"]\n\n[params]')
        .replace("int k = 0; k < K", "int k = blockIdx.z * (K / 2); k < (blockIdx.z + 1) * (K / 2)")
        .replace(STORE, "atomicAdd(&partial[(long long)n * M + m], sum);")
        + """extern "C" __global__ void finish(const float* partial, __half* Y, int M, int ldy) {
  int m = blockIdx.x * BM + threadIdx.x;
  if (m < M) Y[(long long)blockIdx.y * ldy + m] = __float2half(partial[(long long)blockIdx.y * M + m]);
}
"""
    )  # fmt: skip
    outcome = judged(dense_kernel(split))
    assert isinstance(outcome, Timed), outcome.findings
    uncleared = judged(dense_kernel(split.replace('init = "zero"', 'init = "poison"')))
    assert uncleared.kind in ("SanitizerFinding", "WrongResult")
    assert uncleared.stage is Gate.SMALL_RUN
