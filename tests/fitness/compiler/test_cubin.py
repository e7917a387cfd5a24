"""The cubin reader on real cubins and on damaged ones."""

from __future__ import annotations

import pytest

from fitness.compile import compile_source
from fitness.compiler.cubin import CubinError, code_hash, module_bytes, sections
from fitness.devices.device import Compiled

SOURCE = """__device__ int counter = 3;
__constant__ float table[4] = {1, 2, 3, 4};
extern "C" __global__ void f(float* y) { y[threadIdx.x] = table[threadIdx.x & 3] + atomicAdd(&counter, 1); }
"""


@pytest.fixture(scope="module")
def cubin() -> bytes:
    result = compile_source(SOURCE, use_cache=False)
    assert isinstance(result, Compiled)
    return result.cubin


def test_finds_code_and_initialised_data(cubin: bytes) -> None:
    found = {section.name: section for section in sections(cubin)}
    assert found[".text.f"].size > 0
    assert found[".nv.constant3"].data[:4] == b"\0\0\x80\x3f"  # 1.0f
    assert found[".nv.global.init"].data[:4] == b"\3\0\0\0"
    assert module_bytes(cubin) == 4 + 16


@pytest.mark.parametrize(("name", "counts"), [(".text.f", True), (".nv.constant3", True), (".debug_line", False)])
def test_hash_sees_code_and_data_but_not_debug_lines(cubin: bytes, name: str, counts: bool) -> None:
    (section,) = (section for section in sections(cubin) if section.name == name)
    assert cubin.count(section.data) == 1
    changed = cubin.replace(section.data, bytes([section.data[0] ^ 1]) + section.data[1:])
    assert (code_hash(changed) != code_hash(cubin)) is counts


@pytest.mark.parametrize("damage", [b"", b"\x7fELF", b"not an ELF file" * 10])
def test_refuses_what_is_no_cubin(damage: bytes) -> None:
    with pytest.raises(CubinError):
        code_hash(damage)


def test_refuses_a_truncated_one(cubin: bytes) -> None:
    with pytest.raises(CubinError):
        code_hash(cubin[: len(cubin) // 2])
