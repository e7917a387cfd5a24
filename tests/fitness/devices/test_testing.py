"""The simulator passes the contract of devices."""

from __future__ import annotations

import pytest

from fitness.devices import DEVICES, open_device
from fitness.devices.device import Device
from fitness.devices.testing import DeviceContract
from fitness.gpu import load
from fitness.registry import UnknownNameError


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path_factory.getbasetemp() / "device-cache"))


@pytest.mark.parametrize("card", ["H200", "A100"])
class TestSimulator(DeviceContract):
    @pytest.fixture
    def device(self, card: str) -> Device:
        return open_device("simulator", load(card))


def test_devices_are_found_by_name() -> None:
    assert "simulator" in DEVICES
    with pytest.raises(UnknownNameError, match="simulator"):
        open_device("simulater", load("H200"))
