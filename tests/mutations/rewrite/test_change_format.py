"""The rule `change_format`: the contract, and what its children look like."""

from __future__ import annotations

import pytest

from fitness.kernel import parse_kernel
from fitness.task import Task
from mutations.operator import Proposal
from mutations.rewrite.change_format import ChangeFormat
from mutations.testing import context, judged, seed_kernel
from tests.mutations.rewrite.kernels import SHAPES, RuleContract, assert_right, children, task_of


class TestChangeFormat(RuleContract):
    rule = ChangeFormat
    seed = "spmm/csr_scalar"


def test_the_header_follows() -> None:
    made = [child for child in children(ChangeFormat(), "spmm/csr_scalar") if child.format.name == "ell"]
    assert sorted(str(child.format.options["order"]) for child in made) == ["column", "row"]
    for child in made:
        assert child.format.name == "ell"
        assert "W.indptr" not in child.header.launches[0].args
        assert "W.max_row" in child.header.launches[0].args
        assert "indptr" not in child.source.split("---*/")[1]


POWER_LAW = Task.from_spec(
    {
        "op": "spmm",
        "shapes": SHAPES,
        "pattern": {"kind": "power_law", "density": 0.1, "exponent": 1.5},
        "dtype": "float32",
        "epilogue": ["bias", "residual"],
    }
)


def test_rows_in_another_order_are_written_where_they_belong() -> None:
    """Bias and residual are those of the row of W, not of the place it is stored at."""
    made = [child for child in children(ChangeFormat(), "spmm/csr_scalar") if child.format.name == "csr"]
    assert sorted(str(child.format.options["order"]) for child in made) == ["cluster", "length"]
    for child in made:
        args = child.header.launches[0].args
        assert args[args.index("W.indptr") + 1] == "W.row_order"
        assert "evo::y_index(row_order[m], n, ldy)" in child.source
        assert "(sum, row_order[m], at)" in child.source
        assert_right(child, POWER_LAW)


def test_an_address_of_y_made_in_front_of_the_loop_keeps_the_order() -> None:
    source = seed_kernel("spmm/csr_scalar").source
    early = source.replace("float sum = 0.0f;", "const int64_t at = evo::y_index(m, n, ldy);\n    float sum = 0.0f;")
    kernel = parse_kernel(early.replace("    const int64_t at = evo::y_index(m, n, ldy);\n    y[at]", "    y[at]"))
    assert kernel.source.count("y_index") == 1
    surroundings = [context(task_of("spmm/csr_scalar"), seed=seed) for seed in range(12)]
    replies = [ChangeFormat().propose([judged(kernel)], one) for one in surroundings]
    assert {reply.kernel.format.name for reply in replies if isinstance(reply, Proposal)} == {"ell"}


@pytest.mark.parametrize("seed", ["spmm/csr_rows", "spmm/csr_warp", "spmm/csr_vector"])
def test_the_ends_of_a_padded_row_are_found_by_bisection(seed: str) -> None:
    (child,) = children(ChangeFormat(), seed)
    assert child.format.options == {"order": "row"}
    assert "ORDER" not in child.params
    assert {"W.indptr", "W.row_order"}.isdisjoint(child.header.launches[0].args)
    assert "row_order" not in child.source
    assert_right(child, POWER_LAW)


@pytest.mark.parametrize("seed", ["spmm/csr_merge", "spmm/bsr_scalar", "gemm/dense_naive"])
def test_kernels_of_another_form_stay(seed: str) -> None:
    assert not children(ChangeFormat(), seed)
