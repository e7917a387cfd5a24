"""Bounds, alignment, initialisation: what is found, and in whose words."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.devices.device import Execution
from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

Y = {"y": np.zeros(64, np.float32)}


def one(code: str, *, uninitialised: bool = True) -> Execution:
    """Run code of one block of 64 threads on x (64 floats) and y."""
    source = f'extern "C" __global__ void k(const float* x, float* y) {{ int t = threadIdx.x;\n{code}\n}}'
    return run(source, launch("k", 1, 64, "x", "y"), {"x": floats(64)}, Y, uninitialised=uninitialised)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("y[t] = x[t + 1];", ("thread (63, 0, 0)", "reads 4 bytes", "x[64]", "0 bytes past")),
        ("y[t - 1] = x[t];", ("thread (0, 0, 0)", "writes 4 bytes", "4 bytes before the start of y")),
        ("y[t * 100000000ll] = x[t];", ("thread (1, 0, 0)",)),
        ("atomicAdd(y + t + 1, 1.f);", ("updates 4 bytes", "y[64]")),
        ("*(float*)(unsigned long long)(64 + t) = 1;", ("in no buffer",)),
        ("__shared__ float s[64]; s[t + 1] = 1; y[t] = s[t];", ("shared memory", "256 bytes")),
        ("float a[4]; for (int i = 0; i < 4; i++) a[i] = x[i]; y[t] = a[(int)x[t] * 0 + t];", ("local memory",)),
    ],
)
def test_out_of_bounds(code: str, words: tuple[str, ...]) -> None:
    execution = one(code)
    assert execution.ended == "fault"
    (finding,) = execution.findings
    assert finding.kind == "out_of_bounds"
    assert finding.line == 2
    for word in words:
        assert word in finding.message


def test_misaligned_vector() -> None:
    execution = one("if (t == 0) *(float2*)(y + 1) = make_float2(1, 2);")
    assert kinds(execution) == {"misaligned"}
    assert "multiple of 8" in execution.findings[0].message


def test_inputs_are_read_only() -> None:
    assert kinds(one("((float*)x)[t] = 0; y[t] = 0;")) == {"input_written"}


def test_generic_pointers_may_point_anywhere_in_one_instruction() -> None:
    execution = one(
        "__shared__ float s[64]; s[t] = 2 * x[t]; __syncthreads(); const float* p = t % 2 ? x : s; y[t] = p[63 - t];"
    )
    clean(execution)
    x = floats(64)
    t = np.arange(64)
    np.testing.assert_array_equal(execution.outputs["y"], np.where(t % 2, x[63 - t], 2 * x[63 - t]))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("__shared__ float s[64]; s[t % 32] = x[t % 32]; __syncthreads(); y[t] = s[t];", True),
        (
            "__shared__ float s[64]; s[t % 32] = x[t % 32]; __syncthreads(); float v = s[t]; y[t] = t < 32 ? v : 0;",
            False,
        ),
        ("__shared__ int s[64]; if (t) s[t] = t; __syncthreads(); y[s[t] & 63] = 1;", True),
        ("__shared__ int s[64]; if (t) s[t] = t; __syncthreads(); if (s[t] & 1) __nanosleep(1); y[t] = 1;", None),
        ("float a[4]; a[t & 3] = 1; y[t] = a[(t + 1) & 3];", True),
        ("float v; if (x[t] > 0) v = 1; y[t] = v;", None),
        ("y[t] = y[t] + 1;", True),
        ("atomicAdd(y + t, 1.f);", True),
    ],
)
def test_uninitialised_values(code: str, found: bool | None) -> None:
    if found is not None:  # None: the compiler may fold the undefined case away
        assert ("uninitialised" in kinds(one(code))) == found
    assert "uninitialised" not in kinds(one(code, uninitialised=False))


def test_unaligned_tail_of_a_buffer_is_in_bounds() -> None:
    source = (
        'extern "C" __global__ void k(const unsigned char* x, unsigned char* y) { y[threadIdx.x] = x[threadIdx.x]; }'
    )
    x = np.arange(37, dtype=np.uint8)
    execution = clean(run(source, launch("k", 1, 37, "x", "y"), {"x": x}, {"y": np.zeros(37, np.uint8)}))
    np.testing.assert_array_equal(execution.outputs["y"], x)


def test_vectors_of_every_width() -> None:
    for kind, count in (("char4", 4), ("short2", 4), ("float2", 8), ("float4", 16), ("double2", 16), ("short4", 8)):
        source = f'extern "C" __global__ void k(const {kind}* x, {kind}* y) {{ y[63 - threadIdx.x] = x[threadIdx.x]; }}'
        x = np.random.default_rng(1).integers(0, 256, (64, count), dtype=np.uint8)
        execution = clean(run(source, launch("k", 1, 64, "x", "y"), {"x": x}, {"y": np.zeros_like(x)}))
        np.testing.assert_array_equal(execution.outputs["y"], x[::-1])
