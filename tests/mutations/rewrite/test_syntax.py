"""The syntax tree: loops, edits, and the forms the grammar stumbles over."""

from __future__ import annotations

import pytest

from mutations.rewrite.syntax import Code, Edit, assigned, counted_loop, leaves, loops

SOURCE = """extern "C" __global__ void f(const float* a, float* b) {
    extern __shared__ __align__(16) float tile[];
    for (int i = 2; i < 10; i += 4)
#pragma unroll
        for (int j = 0; j < 8; ++j) { b[i] += a[j]; if (j > 3) break; }
}
"""


def test_what_the_grammar_does_not_know_is_blanked() -> None:
    code = Code(SOURCE)
    assert not code.root.has_error
    assert "__align__(16)" in code.text(code.kernels()[0])


def test_loops_outer_ones_first() -> None:
    outer, inner = loops(Code(SOURCE))
    assert (outer.type, outer.name, outer.begin, outer.end, outer.step) == ("int", "i", "2", "10", "4")
    assert (inner.name, inner.step, inner.increment) == ("j", "1", "++j")


@pytest.mark.parametrize(
    "head", ["int i = 0; i <= n; ++i", "int i = n; i > 0; --i", "; i < n; ++i", "int i = 0, k = 1; i < n; ++i", ";;"]
)
def test_other_loops_are_none(head: str) -> None:
    code = Code(f"void f(int n) {{ for ({head}) g(); }}")
    (node,) = code.nodes("for_statement")
    assert counted_loop(code, node) is None


def test_what_a_loop_does() -> None:
    code = Code(SOURCE)
    outer, inner = loops(code)
    assert leaves(code, inner.body)
    assert assigned(code, inner.node) == {"b[i]"}
    assert assigned(code, outer.body) == {"b[i]"}


def test_edits_apply_in_order_of_position() -> None:
    code = Code("abcdef")
    assert code.edited([Edit(4, 5, "X"), Edit(0, 1, ""), Edit(2, 2, "--")]) == "b--cdXf"


def test_overlapping_edits_are_a_mistake() -> None:
    with pytest.raises(AssertionError, match="overlap"):
        Code("abcdef").edited([Edit(0, 3, ""), Edit(2, 4, "")])


def test_positions_are_those_of_the_bytes() -> None:
    code = Code("// µs\nint k = 1;\n")
    (name,) = [node for node in code.nodes("identifier") if code.text(node) == "k"]
    assert code.edited([Edit(name.start_byte, name.end_byte, "n")]) == "// µs\nint n = 1;\n"
