"""Shared by all tests: the compile cache of a session is its own, never the user's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVO_CACHE", str(tmp_path_factory.mktemp("evo-cache")))
        yield
