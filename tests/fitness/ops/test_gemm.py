"""gemm passes the contract; its counts are the textbook's."""

from __future__ import annotations

from fitness.ops.gemm import Gemm
from fitness.ops.testing import OpContract


class TestGemm(OpContract):
    op = Gemm()


def test_counts() -> None:
    shape = {"M": 10, "N": 20, "K": 30}
    assert Gemm().flops(shape, 300) == 2 * 10 * 20 * 30
    assert Gemm().dense_bytes(shape, 2, 4) == 2 * 30 * 20 + 4 * 10 * 20
    assert not Gemm().sparse
