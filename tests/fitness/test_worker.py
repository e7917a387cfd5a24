"""One worker process as its parent sees it (faults and limits: tests/evo/test_pool.py)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from fitness.evaluate import Prepared
from fitness.outcome import Gate
from fitness.worker import Answer, CandidateLimits, DeviceSpec, Entered, Message, PrepareRequest, Ready, Worker
from tests.fitness.fakes import dense_kernel, gemm_task


@pytest.fixture
def worker(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path_factory.getbasetemp() / "worker-cache"))
    worker = Worker(DeviceSpec("tests.fitness.fakes:MisbehavingDevice", "H200"), CandidateLimits())
    yield worker
    worker.kill()


def test_serves_requests_and_tells_every_gate(worker: Worker) -> None:
    assert isinstance(worker.receive(), Ready)
    worker.send(PrepareRequest(gemm_task(), dense_kernel()))
    heard: list[Message] = []
    while not (heard and isinstance(heard[-1], Answer)):
        heard.append(worker.receive())
    assert [message.gate for message in heard if isinstance(message, Entered)] == [
        Gate.PARSE,
        Gate.SCREEN,
        Gate.COMPILE,
    ]
    assert isinstance(heard[-1], Answer)
    assert isinstance(heard[-1].result, Prepared)
    assert worker.stage is Gate.COMPILE
    assert 0.0 < worker.cpu_s() < 600.0


def test_is_its_own_process_group_and_ends_once(worker: Worker) -> None:
    worker.receive()
    assert os.getpgid(worker.pid) == worker.pid != os.getpgid(0)
    os.kill(worker.pid, signal.SIGTERM)
    with pytest.raises(EOFError):
        worker.receive()
    first = worker.kill()
    assert "SIGTERM" in first
    assert worker.kill() == first
    assert worker.cpu_s() == 0.0
