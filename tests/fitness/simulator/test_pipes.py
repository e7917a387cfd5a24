"""Clocks of tensor instructions and of what feeds them."""

from __future__ import annotations

import pytest

from fitness.devices.simulator.counters import Op
from fitness.devices.simulator.pipes import Pipes, tensor_clocks, wgmma_wavefronts
from fitness.gpu import load

H200 = load("H200")


@pytest.mark.parametrize(
    ("kind", "clocks"),
    [
        ("wgmma:m64n256k16:f16", 128.0),  # 2048 multiply-adds per clock and SM
        ("wgmma_sp:m64n256k32:f16", 128.0),  # twice that
        ("wgmma:m64n256k32:e4m3", 128.0),
        ("wgmma:m64n256k8:tf32", 128.0),
        ("wgmma:m64n64k16:f16", 32.0),
        ("wgmma:m64n8k16:f16:shared", 18.0),  # 2 KB of A and 256 bytes of B at 128 bytes per clock
    ],
)
def test_a_warpgroup_shares_one_product(kind: str, clocks: float) -> None:
    """Four warps issue it, each a quarter."""
    assert 4 * tensor_clocks(H200, kind) == pytest.approx(clocks)


def test_shared_memory_feeds_wgmma() -> None:
    assert 4 * wgmma_wavefronts("wgmma:m64n64k16:f16") == 16.0
    assert 4 * wgmma_wavefronts("wgmma:m64n64k16:f16:shared") == 32.0
    assert 4 * wgmma_wavefronts("wgmma_sp:m64n64k32:f16:shared") == 48.0
    assert wgmma_wavefronts("mma:m16n8k16:f16") == 0.0


def test_wgmma_and_bulk_copies_do_not_hold_the_warp() -> None:
    pipes = Pipes(H200, (), {}, 4.0)
    product = pipes(Op("wgmma:m64n256k16:f16", defs=(1,), uses=(1,)))
    assert (product.latency, product.occupancy, product.background) == (0.0, 1.0, 128.0)
    assert pipes(Op("bulk")).latency == 0.0
