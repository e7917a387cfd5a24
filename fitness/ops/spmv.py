"""spmv: y = W @ x with a sparse, static W (M x K) and vectors x and y: spmm with N = 1 throughout."""

from __future__ import annotations

from collections.abc import Mapping

from fitness.ops.product import Product


class Spmv(Product):
    """Sparse matrix times vector. Arguments: as spmm; X has K elements, Y has M, whatever the layouts."""

    name = "spmv"
    sparse = True
    fixed: Mapping[str, int] = {"N": 1}

    def default_layouts(self, pattern_kind: str) -> tuple[str, str]:  # noqa: ARG002
        """Col: the vectors are contiguous in either layout."""
        return "col", "col"

    def simulator_baseline(self, dtypes: tuple[str, str], layouts: tuple[str, str], *, epilogue: bool) -> str:  # noqa: ARG002
        """The dense seed for few columns: on a vector, tensor cores gain nothing over reading W once."""
        return "gemm/fused_skinny"
