"""Shared by all tests: the compile cache of a session is its own, never the user's; its processes share it.

Numerical libraries have one thread, as in a run: a session has a process for every CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fitness.threads import one_thread

one_thread()


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of a whole session; each process of pytest-xdist has one of its own below it."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVO_CACHE", str(shared_folder(tmp_path_factory) / "evo-cache"))
        yield
