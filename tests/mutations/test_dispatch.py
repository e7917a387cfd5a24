"""The dispatch operator: which two kernels, at which threshold, and that the child is right and as fast as each."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence

import pytest

import fitness.gpu
import seeds
from fitness.compile import compile_source
from fitness.devices import open_device
from fitness.devices.device import Compiled, Device
from fitness.evaluate import judge
from fitness.kernel import Kernel, parse_kernel
from fitness.outcome import Gate, Timed
from fitness.task import Task
from mutations.combination import MOST_PARTS, CombinationError, Split, combine, parts
from mutations.dispatch import Dispatch
from mutations.header_text import header_text
from mutations.launches import servings
from mutations.operator import Context, Judged, Operator, Proposal, Refusal
from mutations.regions import regions
from mutations.rewrite.operator import Rewrite
from mutations.splice import Splice
from mutations.surrogate import Surrogate
from mutations.testing import OperatorContract, context, judged, nm24_task, seed_kernel, timed
from mutations.tune import Tune
from tests.seeds.running import KERNELS, task_of

SPLIT = Split("N", (16, 32, 64, 128, 256), 64)


class TestDispatchKeepsTheContract(OperatorContract):
    draws = 3

    def operator(self) -> Operator:
        return Dispatch()

    def parents(self) -> tuple[Judged, ...]:
        return (judged(seed_kernel("spmm/nm24_mma_sp"), 0, timed(self.task(), (9.0, 40.0))),)

    def surroundings(self, seed: int = 0, tried: Collection[str] = ()) -> Context:
        task = self.task()
        seen = [
            judged(seed_kernel(name), n, timed(task, times))
            for n, (name, times) in enumerate(
                [
                    ("spmm/nm24_mma_sp_fragment", (7.0, 20.0)),
                    ("spmm/nm24_dense_mma", (10.0, 30.0)),
                    ("spmm/nm24_vector", (8.0, 90.0)),
                ],
                start=1,
            )
        ]
        return context(task, seed=seed, tried=tried, seen=[*self.parents(), *seen])


def task_of_columns(*columns: int) -> Task:
    shapes = [{"M": 512, "K": 256, "N": n} for n in columns]
    return Task.from_spec(
        {"op": "gemm", "dtype": "float16", "epilogue": ["bias", "relu"], "shapes": shapes, "free": ["N"]}
    )


TASK = task_of_columns(16, 512)
CSR = Task.from_spec(
    {
        "op": "spmm",
        "dtype": "float32",
        "pattern": {"kind": "random", "density": 0.1},
        "shapes": [{"M": 256, "K": 256, "N": 16}, {"M": 256, "K": 256, "N": 512}],
        "free": ["N"],
    }
)
NARROW = {"BM": 64, "BN": 16, "WM": 16, "WN": 16}
WIDE = {"BM": 128, "BN": 64}


@functools.cache
def device() -> Device:
    return open_device("simulator", fitness.gpu.load("H200"))


@functools.cache
def outcome(kernel: Kernel, task: Task) -> Timed:
    found = judge(kernel, task, device())
    assert isinstance(found, Timed), found
    return found


def times(kernel: Kernel, task: Task) -> list[float]:
    return [timing.time_us for timing in outcome(kernel, task).timings]


def propose(parent: Judged, seen: Sequence[Judged], task: Task = TASK, tried: Sequence[str] = ()) -> Proposal | Refusal:
    return Dispatch().propose([parent], context(task, seen=[parent, *seen], tried=tried))


def mma(**params: int) -> Kernel:
    return seed_kernel("gemm/fused_mma").with_params(params)


# -- which kernels, which threshold --------------------------------------------------------------------------------


def test_the_partner_is_the_one_that_promises_most() -> None:
    task = task_of_columns(16, 128, 512)
    parent = judged(mma(), 7, timed(task, (4.86, 8.05, 8.38)))
    seen = [
        judged(mma(BN=128), 11, timed(task, (4.8, 7.0, 20.0))),
        judged(mma(BN=32), 12, timed(task, (4.86, 5.26, 16.7))),
        judged(mma(STAGES=4), 13, timed(task, (4.0, 9.0, 8.3))),  # best at either end, which no threshold gives
    ]
    reply = propose(parent, seen, task)
    assert isinstance(reply, Proposal)
    assert reply.reason == (
        "N <= 256 as #12 (4.86 us at N=16, 5.26 us at N=128), else as #7 (8.38 us at N=512); 5.98 us expected"
    )
    assert reply.kernel.params["SPLIT_N"] == 256
    assert reply.kernel.params["BN"] == 32
    assert reply.kernel.params["BN_2"] == 64
    # From the other one of the pair the same child, which is known then.
    again = propose(seen[1], [parent], task)
    assert isinstance(again, Proposal)
    assert again.kernel == reply.kernel
    refused = propose(seen[1], [parent], task, tried=[reply.kernel.id])
    assert isinstance(refused, Refusal)
    assert "has that combination already" in refused.why


def test_the_threshold_lies_between_the_shapes_and_can_be_moved_to_other_gaps() -> None:
    task = task_of_columns(16, 128, 512)
    first = judged(mma(), 0, timed(task, (9.0, 5.0, 5.0)))
    second = judged(mma(BN=32), 1, timed(task, (4.0, 9.0, 9.0)))
    reply = propose(first, [second], task)
    assert isinstance(reply, Proposal)
    assert reply.kernel.header.params["SPLIT_N"].values == (16, 32, 64, 128, 256)
    assert reply.kernel.params["SPLIT_N"] in (32, 64)
    no_power = task_of_columns(17, 20)
    reply = propose(judged(mma(), 0, timed(no_power, (9.0, 5.0))), [judged(mma(BN=32), 1, timed(no_power, (4.0, 9.0)))],
                    no_power)  # fmt: skip
    assert isinstance(reply, Proposal)
    assert reply.kernel.params["SPLIT_N"] == 17


@pytest.mark.parametrize("dim", ["M", "K"])
def test_other_sizes_decide_where_columns_do_not(dim: str) -> None:
    shapes = [{"M": 256, "K": 256, "N": 16}, {"M": 256, "K": 256, "N": 16, dim: 1024}]
    task = Task.from_spec({"op": "gemm", "dtype": "float16", "shapes": shapes})
    reply = propose(judged(mma(), 0, timed(task, (9.0, 5.0))), [judged(mma(BN=32), 1, timed(task, (4.0, 9.0)))], task)
    assert isinstance(reply, Proposal)
    assert reply.kernel.params[f"SPLIT_{dim}"] == 512


def test_what_is_refused_and_why() -> None:
    parent = judged(mma(), 0, timed(TASK, (9.0, 9.0)))
    slower = judged(mma(BN=32), 1, timed(TASK, (8.9, 9.1)))  # 0.6 % at best
    one_shape = task_of_columns(16)
    other_format = judged(seed_kernel("spmm/nm24_mma_sp_fragment"), 1, timed(nm24_task(), (5.0, 50.0)))
    nm24 = judged(seed_kernel("spmm/nm24_mma_sp"), 0, timed(nm24_task(), (9.0, 40.0)))
    for reply, why in (
        (propose(parent, [slower]), "2%"),
        (propose(judged(mma(), 0, timed(one_shape, (9.0,))), [], one_shape), "one shape"),
        (propose(judged(mma(), 0), [slower]), "timed"),
        (propose(nm24, [other_format], nm24_task()), "two ways"),
    ):
        assert isinstance(reply, Refusal)
        assert why in reply.why


# -- the child ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "task"),
    [
        (seed_kernel("spmm/nm24_wgmma_sp"), seed_kernel("spmm/nm24_mma_sp_fragment"), nm24_task()),
        (mma(**NARROW), mma(**WIDE), TASK),
        (seed_kernel("gemm/fused_splitk"), mma(**WIDE), TASK),
        (
            seed_kernel("spmm/csr_rows"),
            seed_kernel("spmm/csr_vector"),
            CSR,
        ),  # a param of one is a constant of the other
        (seed_kernel("spmm/csr_adaptive"), seed_kernel("spmm/csr_adaptive").with_params({"VEC": 2}), CSR),  # by macros
    ],
    ids=["nm24 on one card only", "fused_mma twice", "splitk and mma", "csr", "adaptive twice"],
)
def test_a_child_is_right_and_as_fast_as_each_parent_at_its_shape(low: Kernel, high: Kernel, task: Task) -> None:
    child = combine(low, high, SPLIT)
    assert times(child, task) == pytest.approx([times(low, task)[0], times(high, task)[1]], rel=0.01)
    assert parse_kernel(child.source, params=child.params) == child


def test_launches_serve_their_shapes_only() -> None:
    child = combine(mma(**NARROW), mma(**WIDE), SPLIT)
    (narrow, below), (wide, beyond) = servings(child, TASK, fitness.gpu.load("H200"))
    assert (narrow, wide) == ((0,), (2,))
    assert {"BM", "BN"} <= below
    assert {"BM_2", "BN_2"} <= beyond
    assert beyond.isdisjoint({"BM", "BN"})


def test_two_settings_of_two_sources_share_their_source() -> None:
    """What is learnt of one child's params then serves the others."""
    low, high = seed_kernel("gemm/fused_splitk"), mma()
    one = combine(low, high, SPLIT)
    other = combine(low, mma(**NARROW), Split("N", SPLIT.values, 16))
    assert one.source == other.source
    assert one.params != other.params


def test_names_that_would_meet_are_renamed_and_others_are_not() -> None:
    child = combine(seed_kernel("spmm/csr_rows"), seed_kernel("spmm/csr_vector"), SPLIT)
    assert child.header.format == seed_kernel("spmm/csr_rows").header.format
    assert "ORDER_2" not in child.params  # the format is one: so is the param that chooses it
    assert {"TX", "VEC", "VEC_2", "LANES_2"} <= child.params.keys()
    assert [launch.kernel for launch in child.header.launches] == ["spmm", "spmm_2"]
    assert {"epilogue", "epilogue_2"} <= regions(child.source).keys()
    assert child.source.count("#include") == 1


def test_strings_and_comments_stay_and_macros_end_with_their_part() -> None:
    source = seed_kernel("spmm/nm24_scalar").source + (
        "#define HELPER 3\n// BM stays\n__device__ const char* text() { return \"M TX BM\"; }\n"
    )  # fmt: skip
    kernel = parse_kernel(source)
    name = next(iter(kernel.header.params))
    kernel = parse_kernel(source.replace("BM stays", f"{name} stays").replace("M TX BM", f"M {name}"))
    child = combine(kernel, kernel, SPLIT)
    assert child.source.count(f"// {name} stays") == 2
    assert child.source.count(f'"M {name}"') == 2
    assert child.source.count("#undef HELPER") == 2


def test_dynamic_shared_memory_of_two_types() -> None:
    """An entry of C linkage shares `extern __shared__` arrays of a name with those of other namespaces."""
    task = Task.from_spec({"op": "gemm", "dtype": "float16", "shapes": [{"M": 64, "K": 64, "N": n} for n in (16, 64)]})
    child = combine(seed_kernel("gemm/fused_tiled"), seed_kernel("gemm/dense_tiled"), Split("N", (16, 32), 32))
    assert "unsigned char shared_2[]" in child.source
    assert judge(child, task, device(), depth=Gate.SMALL_RUN).valid


def test_format_params_that_differ_keep_their_values() -> None:
    low = parse_kernel(seed_kernel("spmm/bsr_scalar").source)
    high = parse_kernel(low.source.replace('r = "R"', f'r = "{low.params["R"]}"'))
    child = combine(low, high, SPLIT)
    assert child.header.params["R"].values == (low.params["R"],)
    assert child.format == low.format


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_header_is_written_as_it_is_read(name: str) -> None:
    header = KERNELS[name].header
    once = parse_kernel(header_text(header)).header
    assert repr(once).split() == repr(header).replace("\\n", " ").split()  # but for line ends in long expressions
    assert parse_kernel(header_text(once)).header == once


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (('format      = "dense"', 'format      = "dense"\noptions = ["--use_fast_math"]'), "different options"),
        (('dtypes      = ["float16", "bfloat16"]', 'dtypes      = ["float32"]'), "no dtypes in common"),
        (('#include "task.cuh"', '#define X 1\n#include "task.cuh"'), "#include stands behind #define"),
    ],
)
def test_kernels_that_cannot_stand_together_are_refused(change: tuple[str, str], why: str) -> None:
    with pytest.raises(CombinationError, match=why):
        combine(mma(), parse_kernel(mma().source.replace(*change)), SPLIT)


# -- what comes after --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def child() -> Judged:
    return judged(combine(mma(**NARROW), mma(**WIDE), SPLIT), 5, timed(TASK, (4.0, 9.0)))


@pytest.mark.parametrize("operator", [Tune(), Surrogate(), Rewrite()], ids=lambda one: str(one.name))
def test_other_operators_work_on_a_child(operator: Operator, child: Judged) -> None:
    kernels = set()
    for seed in range(8):
        reply = operator.propose([child], context(TASK, seed=seed, seen=[child]))
        assert isinstance(reply, Proposal)
        kernels.add(reply.kernel)
    assert len(kernels) > 3
    if operator.name == "rewrite":
        assert judge(min(kernels, key=lambda one: one.id), TASK, device(), depth=Gate.SMALL_RUN).valid


def test_splice_exchanges_params_of_children(child: Judged) -> None:
    other = combine(mma(**NARROW, STAGES=4), mma(**WIDE, STAGES=5), SPLIT)
    reply = Splice().propose([child, judged(other, 6, timed(TASK, (5.0, 8.0)))], context(TASK))
    assert isinstance(reply, Proposal)
    assert {name: reply.kernel.params[name] for name in ("STAGES", "STAGES_2")} == {"STAGES": 3, "STAGES_2": 5}


@pytest.mark.parametrize("as_low", [False, True])
def test_a_third_part_can_join_but_no_fourth(child: Judged, as_low: bool) -> None:
    task = task_of_columns(16, 128, 512)
    two, one = child.candidate.kernel, mma(BM=64, BN=32)
    threshold = Split("N", SPLIT.values, 16 if as_low else 256)
    whole = combine(one, two, threshold) if as_low else combine(two, one, threshold)
    assert parts(whole) == 3 == MOST_PARTS
    serving = [places for places, _ in servings(whole, task, fitness.gpu.load("H200"))]
    assert len(set(serving)) == 3 if not as_low else serving[1] == serving[2] != serving[0]
    assert as_low or judge(whole, TASK, device(), depth=Gate.SMALL_RUN).valid
    with pytest.raises(CombinationError, match="3 parts"):
        combine(whole, one, SPLIT)


@pytest.mark.slow
@pytest.mark.parametrize("low", sorted(KERNELS))
def test_any_two_seeds_of_an_operation_compile_together_or_are_refused(low: str) -> None:
    op = low.partition("/")[0]
    for path in seeds.seed_paths(f"{op}/*"):
        high = f"{op}/{path.stem}"
        try:
            child = combine(KERNELS[low], KERNELS[high], Split("K", (16, 32, 64), 32))
        except CombinationError:
            continue
        defines = (*task_of(low).defines, *child.defines)
        built = compile_source(child.source, defines=defines, flags=child.header.options)
        assert isinstance(built, Compiled), (high, built)
        assert set(built.entries) == {launch.kernel for launch in child.header.launches}, high
