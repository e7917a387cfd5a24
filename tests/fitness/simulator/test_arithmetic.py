"""The lookup from opcode to function: types, scalars, refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fitness.devices.simulator.arithmetic import UnsupportedInstruction, instruction
from fitness.devices.simulator.registers import plain

Array = NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TYPE_OF = {
    "16": np.uint16, "32": np.uint32, "64": np.uint64, "f32": np.float32, "f64": np.float64, "pred": np.bool_,
}  # fmt: skip

# opcode, register types of the sources, register type of the result
FORMS = [
    ("add.s32", "32 32", "32"), ("add.u64", "64 64", "64"), ("add.u16", "16 16", "16"),
    ("mad.lo.s32", "32 32 32", "32"), ("mad.wide.u32", "32 32 64", "64"), ("mul.wide.s16", "16 16", "32"),
    ("mul.hi.s64", "64 64", "64"), ("div.s32", "32 32", "32"), ("rem.u32", "32 32", "32"),
    ("shl.b64", "64 32", "64"), ("shl.b16", "16 32", "16"), ("shr.s32", "32 32", "32"), ("shr.s16", "16 32", "16"),
    ("and.b32", "32 32", "32"), ("not.b16", "16", "16"), ("and.pred", "pred pred", "pred"),
    ("not.pred", "pred", "pred"),
    ("popc.b64", "64", "32"), ("clz.b64", "64", "32"), ("bfe.u64", "64 32 32", "64"), ("prmt.b32", "32 32 32", "32"),
    ("setp.lt.s32", "32 32", "pred"), ("setp.eq.and.u64", "64 64 pred", "pred"), ("setp.gt.f32", "f32 f32", "pred"),
    ("selp.b32", "32 32 pred", "32"), ("selp.f32", "f32 f32 pred", "f32"), ("selp.b64", "64 64 pred", "64"),
    ("set.eq.u32.s32", "32 32", "32"), ("slct.b32.s32", "32 32 32", "32"), ("cnot.b32", "32", "32"),
    ("add.f32", "f32 f32", "f32"), ("add.rn.ftz.f32", "f32 f32", "f32"), ("fma.rn.f32", "f32 f32 f32", "f32"),
    ("fma.rn.f64", "f64 f64 f64", "f64"), ("max.f32", "f32 f32", "f32"), ("ex2.approx.ftz.f32", "f32", "f32"),
    ("add.f16", "16 16", "16"), ("fma.rn.f16x2", "32 32 32", "32"), ("fma.rn.bf16x2", "32 32 32", "32"),
    ("neg.bf16", "16", "16"), ("neg.f32", "f32", "f32"), ("abs.f64", "f64", "f64"), ("xor.b64", "64 64", "64"),
    ("cvt.rn.f16.f32", "f32", "16"), ("cvt.u32.u16", "16", "32"), ("cvt.s64.s32", "32", "64"),
    ("cvt.rzi.s32.f32", "f32", "32"), ("cvt.rn.f16x2.f32", "f32 f32", "32"), ("cvt.f64.f32", "f32", "f64"),
]  # fmt: skip


def draw(kind: str, count: int) -> Array:
    rng = np.random.default_rng(71)
    if kind in ("f32", "f64"):
        return rng.standard_normal(count).astype(TYPE_OF[kind])
    if kind == "pred":
        return rng.random(count) < 0.5
    return rng.integers(0, 2 ** int(kind), count, dtype=np.uint64).astype(TYPE_OF[kind])


@pytest.mark.parametrize(("opcode", "sources", "result"), FORMS)
def test_registers_keep_their_types_and_uniform_values_stay_scalars(opcode: str, sources: str, result: str) -> None:
    values = [draw(kind, 40) for kind in sources.split()]
    function = instruction(opcode)
    lanes = function(*values)
    assert lanes.shape == (40,)
    assert lanes.dtype == TYPE_OF[result]
    scalar = function(*(v[7] for v in values))
    assert not isinstance(scalar, np.ndarray)
    assert scalar.dtype == lanes.dtype
    assert scalar.tobytes() == lanes[7].tobytes()
    if len(values) > 1:
        mixed = function(values[0], *(v[7] for v in values[1:]))
        assert mixed.dtype == lanes.dtype
        assert mixed[7].tobytes() == lanes[7].tobytes()


@pytest.mark.parametrize(
    "opcode",
    [
        "add.cc.u32",
        "addc.u32",
        "madc.lo.u32",
        "fancy.f32",
        "lop3.b32",
        "cvt.f32.e4m3",
        "ex2.s32",
        "set.lt.and.f16x2.f16x2",
    ],
)
def test_unknown_instructions_are_refused_by_name(opcode: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=opcode.replace(".", r"\.")):
        instruction(opcode)


def test_boolean_operators_of_setp() -> None:
    a, b = np.array([1, 2, 3], np.uint32), np.array([2, 2, 2], np.uint32)
    c = np.array([True, True, False])
    assert instruction("setp.lt.and.u32")(a, b, c).tolist() == [True, False, False]
    assert instruction("setp.lt.or.u32")(a, b, c).tolist() == [True, True, False]
    assert instruction("setp.lt.xor.u32")(a, b, c).tolist() == [False, True, False]


def test_set_writes_ones_or_one() -> None:
    a, b = np.array([1.0, 3.0], np.float32), np.array([2.0, 2.0], np.float32)
    assert instruction("set.lt.u32.f32")(a, b).tolist() == [0xFFFFFFFF, 0]
    assert instruction("set.lt.f32.f32")(a, b).tolist() == [1.0, 0.0]


def test_signed_and_unsigned_comparisons_differ() -> None:
    a, b = np.array([0xFFFFFFFF], np.uint32), np.array([1], np.uint32)
    assert instruction("setp.lt.s32")(a, b).tolist() == [True]
    assert instruction("setp.lt.u32")(a, b).tolist() == [False]
    assert instruction("setp.hi.u32")(a, b).tolist() == [True]


def test_slct_chooses_by_sign() -> None:
    a, b = np.array([1, 1], np.uint32), np.array([2, 2], np.uint32)
    assert instruction("slct.b32.s32")(a, b, np.array([0, 0xFFFFFFFF], np.uint32)).tolist() == [1, 2]
    assert instruction("slct.b32.f32")(a, b, np.array([-0.0, np.nan], np.float32)).tolist() == [1, 2]


def test_plain_unwraps_only_scalars() -> None:
    assert isinstance(plain(np.array(3.0)), np.float64)
    assert plain(np.zeros(2)).shape == (2,)
