"""A header that does not fit its task is refused with its line; a narrow `require` is found wherever it fails."""

from __future__ import annotations

from fitness.kernel import parse_kernel
from fitness.outcome import Finding, Gate
from tests.fitness.cases import gemm_task, nm24_task

SOURCE = """/*---
format = "nm24"
require = ["K % 64 == 0"]
[[workspace]]
name = "part"
bytes = "M * N * 4"
[[launch]]
kernel = "f"
grid = ["cdiv(M, BM)", "min(SMS, L2)", "max(1, W.nnz)"]
block = [32]
args = ["W.values", "W.meta", "X", "Y", "M", "N", "K", "ldx", "ldy", "part", "1.5e-3", "-7"]
memset = ["part", "Y"]
[params]
BM = { values = [16, 32], default = 16 }
---*/
"""


def violations(old: str = "", new: str = "") -> tuple[Finding, ...]:
    assert old in SOURCE
    return nm24_task().domain_violations(parse_kernel(SOURCE.replace(old, new) if old else SOURCE))


def one(old: str, new: str) -> Finding:
    found = violations(old, new)
    assert len(found) == 1, found
    assert found[0].gate is Gate.PARSE
    assert found[0].suggestion
    return found[0]


def test_a_fitting_kernel() -> None:
    assert violations() == ()


def test_unknown_name_in_an_expression() -> None:
    finding = one("cdiv(M, BM)", "cdiv(M, BMM)")
    assert (finding.kind, finding.line) == ("unknown_name", 9)
    assert "'BM'" in finding.suggestion


def test_unknown_argument() -> None:
    finding = one('"W.meta"', '"W.metadata"')
    assert (finding.kind, finding.line) == ("unknown_argument", 11)
    assert "W.meta" in finding.suggestion


def test_only_outputs_and_workspaces_can_be_cleared() -> None:
    assert one('memset = ["part", "Y"]', 'memset = ["X"]').line == 12


def test_workspace_named_like_an_argument() -> None:
    kinds = {f.kind for f in violations('name = "part"', 'name = "Y"')}
    assert kinds == {"unknown_argument"}


def test_require_must_hold_on_all_shapes() -> None:
    finding = one("K % 64 == 0", "N % 8 == 0")
    assert (finding.kind, finding.line) == ("require_too_narrow", 3)
    assert finding.shape is not None
    assert finding.shape["N"] % 8 != 0


def test_require_that_dodges_only_hidden_shapes() -> None:
    """The listed N are 16 and 64; nothing that only fits those or the small shapes passes."""
    finding = one("K % 64 == 0", "N <= 65 or N == 128")
    assert (finding.kind, finding.shape) == ("require_too_narrow", None), "hidden shapes are shown to nobody"
    assert "whole domain" in finding.message
    assert one("K % 64 == 0", "M <= 256 and N != 33").kind == "require_too_narrow"


def test_require_may_use_params_and_leading_dimensions_only() -> None:
    assert violations("K % 64 == 0", "ldx % 8 == 0 and K % BM == 0") == ()
    assert one("K % 64 == 0", "SMS > 4").kind == "unknown_name"
    assert one("K % 64 == 0", "K % (BM - 16) == 0").kind == "require_too_narrow"  # division by zero


def test_format_that_cannot_store_the_operand() -> None:
    found = gemm_task().domain_violations(parse_kernel(SOURCE))
    assert [(f.kind, f.line) for f in found] == [("unsupported_format", 2)]
