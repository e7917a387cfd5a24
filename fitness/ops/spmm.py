"""spmm: Y = W @ X with a sparse, static W (M x K), dense X (K x N) and Y (M x N)."""

from __future__ import annotations

from fitness.ops.product import Product


class Spmm(Product):
    """Sparse times dense. Arguments: the arrays of W's format, then those of gemm."""

    name = "spmm"
    sparse = True

    def default_layouts(self, pattern_kind: str) -> tuple[str, str]:
        """Col for nm and dense patterns (activations [tokens, features]), row for unstructured and block ones."""
        layout = "col" if pattern_kind in ("nm", "dense") else "row"
        return layout, layout
