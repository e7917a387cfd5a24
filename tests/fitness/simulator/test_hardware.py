"""Instruction semantics against what an H200 gave (recorded; data/h200_instructions.npz).

130-odd scalar instructions on random and special operands, bit for bit (NaN payloads of f32 aside), and the
tensor-core instructions: integers and f16 and fp8 results bit for bit, f32 sums to the last bits, which the
hardware truncates.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator import mma_sparse, tensor
from fitness.devices.simulator.arithmetic import instruction

Array = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
RECORDED = np.load(Path(__file__).parent / "data" / "h200_instructions.npz")
INDEX: dict[str, list[list[Any]]] = json.loads(RECORDED["index"].tobytes())


def register(words: Array, kind: str) -> Array:
    """Recorded 32-bit words as the registers the simulator holds: h 16-bit, f float32, r 32-bit."""
    if kind == "h":
        return words.astype(np.uint16)
    return np.ascontiguousarray(words).view(np.float32) if kind == "f" else words


@pytest.mark.parametrize("row", range(len(INDEX["scalar"])), ids=[entry[0] for entry in INDEX["scalar"]])
def test_scalar_instruction(row: int) -> None:
    opcode, operands, count, d_kind, s_kind = INDEX["scalar"][row]
    sources = [register(RECORDED[f"in_{operands}"][i], s_kind) for i in range(count)]
    want = register(RECORDED["results"][row], d_kind)
    got = instruction(opcode, exact=True)(*sources)
    if d_kind == "f":
        np.testing.assert_array_equal(got, want)
        got, want = (np.where(np.isnan(x), np.float32(0), x).view(np.uint32) for x in (got, want))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "row", range(len(INDEX["tensor"])), ids=[f"{entry[0]}/{entry[1]}" for entry in INDEX["tensor"]]
)
def test_tensor_instruction(row: int) -> None:
    opcode, selector, kinds = INDEX["tensor"][row]
    a_type, b_type, c_type = kinds.split()
    shape = next(part for part in opcode.split(".") if part.startswith("m16"))
    a, b, c, want = (list(RECORDED[f"t{row}_{operand}"]) for operand in "abcd")
    if c_type == "f32":
        c = [np.ascontiguousarray(r).view(np.float32) for r in c]
    saturate = "satfinite" in opcode
    if selector is None:
        got = tensor.mma(shape, a_type, b_type, c_type, a, b, c, saturate=saturate)
    else:
        got = mma_sparse.mma_sp(
            shape, a_type, b_type, c_type, a, b, c, RECORDED["metadata"], selector, saturate=saturate
        )
    for mine, theirs in zip(got, want, strict=True):
        if c_type == "f32":
            np.testing.assert_allclose(mine, np.ascontiguousarray(theirs).view(np.float32), rtol=0, atol=4e-6)
        else:
            np.testing.assert_array_equal(mine, theirs)
