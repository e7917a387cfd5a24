"""Operations a task applies: one module each, found by name."""

from __future__ import annotations

from typing import cast

from fitness.ops.op import Op
from fitness.registry import find

__all__ = ["OPS", "Op", "get_op"]

OPS: dict[str, str] = {
    "gemm": "fitness.ops.gemm:Gemm",
    "spmm": "fitness.ops.spmm:Spmm",
    "spmv": "fitness.ops.spmv:Spmv",
}


def get_op(name: str) -> Op:
    """The op of that name (or dotted path "module:Class").

    Raises:
        UnknownNameError: there is none; the message has the nearest spelling.
    """
    return cast(Op, find(OPS, name, "op")())
