"""The cache by itself: keys, round trips, folders (together with NVRTC: tests/fitness/test_compile.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.compiler import cache
from fitness.devices.device import Compiled, Entry, Parameter
from fitness.outcome import Finding, Gate

WARNING = Finding(Gate.COMPILE, "compiler_warning", "unused \u00fc", 7, severity="warning")
ENTRY = Entry("k", (Parameter("p", "u64", 8, True),), 32, 256, 8, 4, 12, 128, (64, 2, 1))
BUILD = Compiled("sm_90a", ".version 9.5\n", b"\x7fELF\0\xff", "abc", {"k": ENTRY}, (WARNING,))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVO_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("result", [BUILD, (WARNING,), ()])
def test_what_is_stored_comes_back_equal(result: Compiled | tuple[Finding, ...]) -> None:
    name = cache.key("a", "b")
    assert cache.load(name) is None
    cache.store(name, result)
    assert cache.load(name) == result


def test_keys_keep_their_parts_apart() -> None:
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("abc", "")}) == 4


def test_a_store_leaves_one_file_and_replaces_what_was_there(own_cache: Path) -> None:
    name = cache.key("x")
    cache.store(name, ())
    cache.store(name, BUILD)
    assert cache.load(name) == BUILD
    assert len([path for path in own_cache.rglob("*") if path.is_file()]) == 1


def test_folder_is_the_variables_else_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.folder() == tmp_path
    monkeypatch.delenv("EVO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.folder() == Path("/somewhere/evo")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "evo"
