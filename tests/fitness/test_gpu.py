"""The data sheets load, agree with one another and with the published peaks."""

from __future__ import annotations

import pytest

from fitness import gpu


def test_known_cards() -> None:
    assert {"A100", "H200", "L40S"} <= set(gpu.known())


@pytest.mark.parametrize("name", gpu.known())
def test_every_card_has_every_constant_and_consistent_peaks(name: str) -> None:
    card = gpu.load(name)
    assert set(card.model) == set(gpu.load("H200").model)
    assert all(value > 0 for value in card.model.values())
    assert card.model["dram_gb_per_s"] < card.bandwidth_gb_per_s
    assert card.limits.shared_bytes_per_block == card.limits.shared_bytes_per_sm - 1024
    fp32_lanes = 32 * card.model["fp32_per_clk"]
    assert card.tflops["float32"] == pytest.approx(2 * fp32_lanes * card.sms * card.clock_ghz / 1e3, rel=0.01)
    assert card.tflops["float16"] >= 2 * card.model["mma_macs_per_clk"] * card.sms * card.clock_ghz / 1e3 * 0.999
    assert "data sheet" in card.source


def test_published_figures() -> None:
    h200, a100, l40s = (gpu.load(name) for name in ("H200", "A100", "L40S"))
    assert (h200.sms, h200.bandwidth_gb_per_s, h200.launch_us) == (132, 4800, 1.0)
    assert h200.tflops["float16"] == pytest.approx(1070, rel=0.001)
    assert (a100.sms, a100.bandwidth_gb_per_s, a100.tflops["float16"]) == (108, 2039, 312)
    assert (l40s.sms, l40s.bandwidth_gb_per_s) == (142, 864)


def test_floor_is_launch_plus_the_larger_of_bytes_and_flops() -> None:
    card = gpu.load("h200")
    assert card.floor_us(4.8e6, 0.0, "float16") == pytest.approx(2.0)
    assert card.floor_us(4.8e6, 3 * 1.0705e9, "float16") == pytest.approx(4.0)


def test_an_unknown_card_lists_those_there_are() -> None:
    with pytest.raises(gpu.GpuError, match="H200"):
        gpu.load("H2000")
