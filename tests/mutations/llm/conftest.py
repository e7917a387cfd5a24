from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_httpserver import HTTPServer


@pytest.fixture
def httpserver() -> Iterator[HTTPServer]:
    """A threaded server: several requests at once, and a fault of one does not hold up the others."""
    with HTTPServer(threaded=True) as server:
        yield server
