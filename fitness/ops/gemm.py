"""gemm: Y = W @ X with a dense W (M x K), X (K x N) and Y (M x N)."""

from __future__ import annotations

from fitness.ops.product import Product


class Gemm(Product):
    """Dense times dense. Arguments: W.values, X, Y, M, N, K, ldx, ldy, W.nnz, W.max_row, bias, residual, scale."""

    name = "gemm"
    sparse = False

    def default_layouts(self, pattern_kind: str) -> tuple[str, str]:  # noqa: ARG002
        """Col: activations [tokens, features]."""
        return "col", "col"
