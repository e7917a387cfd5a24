"""Dependence on the thread: what is the same in a row of threads, and what cannot be told."""

from __future__ import annotations

import pytest

from mutations.rewrite.syntax import Code, statements
from mutations.rewrite.threads import EVERY, Threads, element_type, in_code, prelude, with_threads

SOURCE = """
__device__ int own() { return threadIdx.x; }
__device__ int twice(int v) { return 2 * v; }

__global__ void f(const float* a, float* y, int n) {
    const int block = blockIdx.x * 4, x = block + threadIdx.x, row = threadIdx.y / 2;
    __shared__ float tile[32];
    const float* a_row = a + row * n;
    int changed = 0, chosen = 0, counted = 0;
    const float shared = tile[0], same = a_row[block];
    const int lane = __shfl_sync(0xffffffffu, block, 0), called = own(), plain = twice(row);
    float part[4];
    if (x >= n || row >= n) return;
    for (int i = 0; i < n; ++i) y[i] = 0.0f;
    changed = x;
    if (x > 3) chosen = 1;
    part[0] = row;
    ++counted;
}
"""
CODE = Code(SOURCE)
(FUNCTION,) = CODE.kernels()
X, Y = frozenset("x"), frozenset("y")


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("block", frozenset()), ("x", X), ("row", Y), ("a_row", Y), ("same", Y), ("plain", Y), ("changed", X),
        ("chosen", X), ("counted", frozenset()), ("shared", EVERY), ("lane", EVERY), ("called", EVERY),
        ("part", EVERY), ("n", frozenset()), ("a_row + x", X | Y), ("threadIdx.z", frozenset("z")),
    ],
)  # fmt: skip
def test_what_a_name_depends_on(name: str, dims: frozenset[str]) -> None:
    assert Threads(CODE, FUNCTION).of_text(name) == dims


def test_a_name_of_another_name_settles_whatever_the_order() -> None:
    """A loop carries a dependence backwards: b is used before a has got it."""
    code = Code("__global__ void f() { int a = 0, b = 0; for (int i = 0; i < 3; ++i) { b = a; a = threadIdx.x; } }")
    (function,) = code.kernels()
    assert Threads(code, function).of_text("b") == X


def loop_of(code: Code) -> object:
    body = code.kernels()[0].child_by_field_name("body")
    assert body is not None
    return next(node for node in statements(body) if node.type == "for_statement")


def test_the_prelude_of_a_loop() -> None:
    before = prelude(CODE, FUNCTION, loop_of(CODE))  # type: ignore[arg-type]
    assert before is not None
    assert [CODE.text(node) for node in before.conditions] == ["x >= n", "row >= n"]
    assert [before.names(node)[0] for node in before.needed(["a_row"], Y)] == ["block", "a_row"]
    assert not before.needed(["a_row"], frozenset("z"))
    assert before.reads_memory(Y)


def test_other_statements_in_front_are_no_prelude() -> None:
    code = Code("__global__ void f() { g(); for (int i = 0; i < 3; ++i) h(); }")
    assert prelude(code, code.kernels()[0], loop_of(code)) is None  # type: ignore[arg-type]


def test_a_statement_as_another_thread_runs_it() -> None:
    first = statements(FUNCTION.child_by_field_name("body"))[0]  # type: ignore[arg-type]
    text = with_threads(CODE, first, {"y": "other"})
    assert text == "const int block = blockIdx.x * 4, x = block + threadIdx.x, row = other / 2;"


def test_types_of_what_pointers_point_to() -> None:
    assert element_type(CODE, FUNCTION, "a") == "float"
    assert element_type(CODE, FUNCTION, "a_row") == "float"
    assert element_type(CODE, FUNCTION, "n") is None


def test_expressions_of_headers_in_code() -> None:
    assert in_code("cdiv(BM, 2) * (BN // TN)") == "(evo::cdiv(BM, 2) * (BN / TN))"
