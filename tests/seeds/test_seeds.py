"""The seed library: paths, headers, compilation, and right results with every check of the simulator on."""

from __future__ import annotations

import numpy as np
import pytest

import fitness.gpu
import seeds
from fitness.compile import CompileError, compile_source
from fitness.devices import open_device
from fitness.devices.device import Device
from fitness.evaluate import judge
from fitness.kernel import Kernel, load_kernel
from fitness.outcome import Gate, Outcome
from fitness.task import Task
from mutations.regions import regions

SPMM = [path.stem for path in seeds.seed_paths("spmm/nm24_*") if path.stem != "nm24_bf16"]
GEMM = [path.stem for path in seeds.seed_paths("gemm/dense_*")]
TENSOR_CORE = ["spmm/nm24_dense_mma", "spmm/nm24_mma_sp", "spmm/nm24_mma_sp_fragment", "gemm/dense_mma_pipelined"]
SHAPES = [{"M": 256, "K": 256, "N": 16}, {"M": 256, "K": 256, "N": 64}]


def kernel(name: str) -> Kernel:
    (path,) = seeds.seed_paths(name)
    return load_kernel(path)


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("simulator", fitness.gpu.load("H200"))


@pytest.fixture(scope="module")
def nm24() -> Task:
    return Task.from_spec(
        {
            "op": "spmm",
            "pattern": {"kind": "nm", "n": 2, "m": 4},
            "dtype": "float16",
            "shapes": SHAPES,
            "free": ["N"],
            "seeds": ["spmm/nm24_*"],
        }
    )


@pytest.fixture(scope="module")
def gemm() -> Task:
    spec = {"op": "gemm", "dtype": "float16", "shapes": SHAPES, "free": ["N"], "seeds": ["gemm/dense_*"]}
    return Task.from_spec(spec)


def small_runs(candidate: Kernel, task: Task, device: Device, *, full: bool) -> Outcome:
    """Gates 1 to 4: whole launches, with bounds, race, initialisation and barrier checks."""
    return judge(candidate, task, device, depth=Gate.SMALL_RUN, full=full)


def random_params(candidate: Kernel, rng: np.random.Generator) -> dict[str, int]:
    while True:
        params = {name: int(rng.choice(param.values)) for name, param in candidate.header.params.items()}
        if candidate.feasible(params):
            return params


# -- paths ------------------------------------------------------------------------------------------------------------


def test_the_library_has_every_seed_of_the_design() -> None:
    sparse = ["dense_mma", "mma_sp", "mma_sp_fragment", "scalar", "shared", "vector", "wgmma_sp"]
    assert [f"nm24_{idea}" for idea in sparse] == SPMM
    assert GEMM == ["dense_mma_pipelined", "dense_naive", "dense_tiled"]


def test_a_name_finds_one_file() -> None:
    (path,) = seeds.seed_paths("spmm/nm24_mma_sp")
    assert path.name == "nm24_mma_sp.cu"
    assert path.is_absolute()


@pytest.mark.parametrize("pattern", ["spmm/none", "nm24_scalar", "../seeds/spmm/nm24_scalar", "/etc/*", ""])
def test_what_matches_nothing_in_the_library_gives_no_path(pattern: str) -> None:
    assert seeds.seed_paths(pattern) == ()


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [f"spmm/{stem}" for stem in SPMM] + [f"gemm/{stem}" for stem in GEMM])
def test_headers_say_what_the_seed_is_and_what_can_be_tuned(name: str) -> None:
    seed = kernel(name)
    assert seed.header.about
    assert seed.feasible(seed.params)
    assert all(len(param.values) > 1 for param in seed.header.params.values())
    assert max(len(line) for line in seed.source.splitlines()) <= 120


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("name", [f"spmm/{stem}" for stem in SPMM] + [f"gemm/{stem}" for stem in GEMM])
def test_seeds_compile_for_every_architecture_they_are_written_for(name: str, arch: str, nm24: Task) -> None:
    seed = kernel(name)
    if arch not in (seed.header.archs or (arch,)):
        card = {"sm_80": "A100", "sm_89": "L40S"}[arch]
        outcome = judge(seed, nm24, open_device("simulator", fitness.gpu.load(card)), depth=Gate.COMPILE)
        assert [finding.kind for finding in outcome.findings] == ["unsupported_arch"]
        assert arch in outcome.findings[0].message
        return
    compiled = compile_source(seed.source, defines=seed.defines, flags=seed.header.options, arch=arch)
    assert not isinstance(compiled, CompileError), compiled
    assert not compiled.warnings
    assert set(compiled.entries) == {launch.kernel for launch in seed.header.launches}
    assert all(entry.spill_store_bytes == 0 for entry in compiled.entries.values())


def test_regions_of_tensor_core_seeds_can_be_exchanged() -> None:
    interfaces: dict[str, set[str]] = {}
    texts: dict[str, set[str]] = {}
    for name in TENSOR_CORE:
        for region in regions(kernel(name).source).values():
            interfaces.setdefault(region.name, set()).add(region.interface)
            texts.setdefault(region.name, set()).add(region.text)
    assert set(interfaces) == {"x_tile", "tile_order", "epilogue", "reduce"}
    assert all(len(found) == 1 for found in interfaces.values())
    assert all(len(found) >= 2 for found in texts.values())  # there is something to exchange


# -- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", SPMM)
def test_sparse_seeds_are_right(stem: str, nm24: Task, device: Device) -> None:
    outcome = small_runs(kernel(f"spmm/{stem}"), nm24, device, full=False)
    assert outcome.valid, outcome.findings
    assert not outcome.findings


@pytest.mark.parametrize("stem", GEMM)
def test_dense_seeds_are_right_at_any_size(stem: str, gemm: Task, device: Device) -> None:
    outcome = small_runs(kernel(f"gemm/{stem}"), gemm, device, full=False)
    assert outcome.valid, outcome.findings
    assert not outcome.findings


@pytest.mark.slow
@pytest.mark.parametrize("stem", SPMM)
def test_sparse_seeds_are_right_on_the_full_lists(stem: str, nm24: Task, device: Device) -> None:
    outcome = small_runs(kernel(f"spmm/{stem}"), nm24, device, full=True)
    assert outcome.valid, outcome.findings
    assert not outcome.findings


@pytest.mark.slow
@pytest.mark.parametrize("stem", GEMM)
def test_dense_seeds_are_right_on_the_full_lists_of_any_size(stem: str, gemm: Task, device: Device) -> None:
    outcome = small_runs(kernel(f"gemm/{stem}"), gemm, device, full=True)
    assert outcome.valid, outcome.findings
    assert not outcome.findings


def test_the_baseline_serves_the_sparse_task(nm24: Task) -> None:
    assert nm24.baseline_seed == "gemm/dense_mma_pipelined"
    assert not nm24.domain_violations(kernel(nm24.baseline_seed))


@pytest.mark.parametrize("name", [f"spmm/{stem}" for stem in SPMM])
def test_seeds_are_right_all_over_their_space(name: str, nm24: Task, device: Device) -> None:
    seed = kernel(name)
    rng = np.random.default_rng(len(name))
    candidate = seed.with_params(random_params(seed, rng))
    outcome = small_runs(candidate, nm24, device, full=False)
    assert outcome.valid, (candidate.params, outcome.findings)
    assert not [finding for finding in outcome.findings if finding.severity == "error"]


@pytest.mark.parametrize(
    "params",
    [
        {"WG": 2, "BN": 32, "KB": 2, "SPLITK": 2, "SMALL_N": 0},  # odd numbers of k64 blocks, rows past M
        {"WG": 1, "BN": 64, "KB": 1, "SPLITK": 4, "STAGES": 2, "SMALL_N": 0},  # a split without work
        {"S_MT": 4, "S_BN": 16, "S_KB": 4, "SMALL_N": 128},
    ],
)
def test_rings_clusters_and_their_tails_are_right(params: dict[str, int], nm24: Task, device: Device) -> None:
    outcome = small_runs(kernel("spmm/nm24_wgmma_sp").with_params(params), nm24, device, full=False)
    assert outcome.valid, outcome.findings
    assert not [finding for finding in outcome.findings if finding.severity == "error"]


@pytest.mark.parametrize("name", TENSOR_CORE[1:3])
def test_split_k_is_right_in_both_shape_classes(name: str, nm24: Task, device: Device) -> None:
    seed = kernel(name)
    candidate = seed.with_params({"SPLITK": 3, "S_SPLITK": 2, "SMALL_N": 16})
    outcome = small_runs(candidate, nm24, device, full=False)
    assert outcome.valid, outcome.findings
