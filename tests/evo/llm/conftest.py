from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer

from tests.evo.llm import world


@pytest.fixture
def httpserver() -> Iterator[HTTPServer]:
    """A threaded server of our own: the plugin's is shared and answers one request at a time."""
    with HTTPServer(threaded=True) as server:
        yield server


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world.install(monkeypatch, tmp_path / "seeds")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
