"""The task table: every problem at once, each with its key and the nearest valid spelling."""

from __future__ import annotations

from typing import Any

import pytest

from fitness.taskspec import TaskError, read_spec

GOOD: dict[str, Any] = {
    "op": "spmm",
    "pattern": {"kind": "nm", "n": 2, "m": 4},
    "shapes": [{"M": 64, "K": 64, "N": 8}],
}


def errors(**changes: Any) -> dict[str, str]:
    spec = {key: value for key, value in {**GOOD, **changes}.items() if value is not ...}
    with pytest.raises(TaskError) as caught:
        read_spec(spec)
    return {key: f"{problem}; {fix}" for key, problem, fix in caught.value.errors}


@pytest.mark.parametrize(
    ("changes", "key", "parts"),
    [
        ({"patern": 1}, "patern", ["unknown key", "'pattern'"]),
        ({"op": "spmmm"}, "op", ["unknown op 'spmmm'", "'spmm'"]),
        ({"op": ...}, "op", ["missing"]),
        ({"pattern": ...}, "pattern", ["spmm is sparse", "kind"]),
        ({"pattern": {"kind": "mn"}}, "pattern", ["unknown pattern 'mn'"]),
        ({"pattern": {"n": 2}}, "pattern", ["names no pattern"]),
        ({"pattern": {"kind": "nm", "n": 4, "m": 4}}, "pattern", ["1 <= n < m"]),
        ({"pattern": {"kind": "nm", "n": 2, "m": 4, "k": 1}}, "pattern", ["unknown key 'k'"]),
        ({"pattern": "nm"}, "pattern", ["not a table"]),
        ({"dtype": "floot16"}, "dtype", ["'float16'"]),
        ({"acc": "float16"}, "acc", ["'float32'"]),
        ({"x_layout": "column"}, "x_layout", ["'col'"]),
        ({"shapes": ...}, "shapes", ["missing", "{ M = 4096, N = 4096, K = 4096 }"]),
        ({"shapes": []}, "shapes", ["missing"]),
        ({"shapes": [3]}, "shapes[0]", ["not a table"]),
        ({"shapes": [{"M": 1, "K": 64, "n": 1}]}, "shapes[0].n", ["'N'"]),
        ({"shapes": [{"M": 1, "K": 64}]}, "shapes[0].N", ["missing"]),
        ({"shapes": [{"M": 0, "K": 64, "N": 1}]}, "shapes[0].M", ["0 is not a size"]),
        ({"shapes": [{"M": True, "K": 64, "N": 1}]}, "shapes[0].M", ["not a size"]),
        ({"shapes": [{"M": 2**31, "K": 64, "N": 1}]}, "shapes[0].M", ["2147483647"]),
        ({"shapes": [{"M": 10, "K": 100, "N": 1}]}, "shapes", ["breaks 'K % 64 == 0'", "nearest: K = 128"]),
        ({"shapes": [{"M": 2**20, "K": 2**20, "N": 1}]}, "shapes", ["GiB"]),
        ({"shapes": {"M": 8, "K": 64, "N": list(range(1, 70))}}, "shapes", ["69 shapes"]),
        ({"free": ["n"]}, "free", ["'N'"]),
        ({"free": "N"}, "free", ["not a list"]),
        ({"domain": ["K % 64 = 0"]}, "domain[0]", ["`==`"]),
        ({"domain": ["k % 64 == 0"]}, "domain[0]", ["'K'"]),
        ({"domain": ["K == 4096"], "shapes": [{"M": 8, "K": 4096, "N": 8}]}, "domain", ["no shape near"]),
        ({"domain": "K > 1"}, "domain", ["not a list"]),
        ({"baseline": 3}, "baseline", ["not a name"]),
        ({"tolerance": 0.1}, "tolerance", ["tau"]),
        ({"tolerance": {"tau": 1e-3, "frob": 1e-3}}, "tolerance.frob", ["'frobenius'"]),
        ({"tolerance": {"tau": 2.0, "frobenius": 1e-3}}, "tolerance", ["0..1"]),
    ],
)
def test_each_problem(changes: dict[str, Any], key: str, parts: list[str]) -> None:
    found = errors(**changes)
    assert key in found, found
    for part in parts:
        assert part in found[key]


def test_all_problems_at_once() -> None:
    found = errors(op="spm", dtype="x", shapes=[{"M": 0, "K": 1, "N": 1}], extra=1, free=["Q"])
    assert {"op", "dtype", "shapes[0].M", "extra", "free"} <= found.keys()


def test_ranges_expand_in_order_without_repeats() -> None:
    fields = read_spec({**GOOD, "shapes": [{"M": 64, "K": [64, 128], "N": [8, 16]}, {"M": 64, "K": 64, "N": 8}]})
    assert [(s["N"], s["K"]) for s in fields["shapes"]] == [(8, 64), (8, 128), (16, 64), (16, 128)]


def test_own_domain_keeps_what_the_pattern_needs() -> None:
    fields = read_spec({**GOOD, "domain": ["K % 32 == 0"], "shapes": [{"M": 8, "K": 96, "N": 1}]})
    assert [condition.text for condition in fields["domain"]] == ["K % 4 == 0", "K % 32 == 0"]


def test_an_empty_list_of_seeds_is_a_start_from_nothing() -> None:
    """Where a model writes the first kernel; without one the run says that there is nothing to start from."""
    assert read_spec({**GOOD, "seeds": []})["seeds"] == ()
