"""Rewrite rules: one file each. The operator `rewrite` draws among them; each is an operator by itself as well.

A rule changes a kernel's source (and header) where it recognises a form in the syntax tree, so that the child
computes the same in another way. Whether it is faster, the evaluation says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RULES: Final[Mapping[str, str]] = {
    "accumulators": "mutations.rewrite.accumulators:Accumulators",
    "cache_hints": "mutations.rewrite.cache_hints:CacheHints",
    "change_format": "mutations.rewrite.change_format:ChangeFormat",
    "double_buffer": "mutations.rewrite.double_buffer:DoubleBuffer",
    "fast_math": "mutations.rewrite.fast_math:FastMath",
    "interchange": "mutations.rewrite.interchange:Interchange",
    "launch_bounds": "mutations.rewrite.launch_bounds:LaunchBounds",
    "padding": "mutations.rewrite.padding:Padding",
    "raster": "mutations.rewrite.raster:Raster",
    "shared_staging": "mutations.rewrite.shared_staging:SharedStaging",
    "split_k": "mutations.rewrite.split_k:SplitK",
    "store_shared": "mutations.rewrite.store_shared:StoreShared",
    "unroll": "mutations.rewrite.unroll:Unroll",
    "vector_loads": "mutations.rewrite.vector_loads:VectorLoads",
    "warp_reduction": "mutations.rewrite.warp_reduction:WarpReduction",
}
"""Name -> "module:Class"; adding a rule is one line here. An experiment names a single one as "module:Class"."""
