"""The cache by itself: keys, round trips, folders (together with NVRTC: tests/fitness/test_compile.py)."""

from __future__ import annotations

import hashlib
import os
import time
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


@pytest.mark.parametrize("damage", [b"", b"junk", b"{}", "cut", "form"])
def test_a_damaged_entry_is_told_from_an_absent_one(own_cache: Path, damage: bytes | str) -> None:
    name = cache.key("x")
    cache.store(name, BUILD)
    (path,) = own_cache.rglob("*.json")
    whole = path.read_bytes()
    body = b'{"arch": "sm_90a"}'
    form = hashlib.sha256(body).hexdigest().encode() + b"\n" + body  # whole, but not what this version writes
    path.write_bytes(damage if isinstance(damage, bytes) else {"cut": whole[:-20], "form": form}[damage])
    assert cache.load(name) == cache.Damaged(path)
    cache.store(name, BUILD)
    assert cache.load(name) == BUILD


def filled(count: int) -> list[str]:
    """Names of as many entries, the first the oldest."""
    names = [cache.key(str(i)) for i in range(count)]
    for i, name in enumerate(names):
        cache.store(name, BUILD)
        os.utime(cache._path(name), (1000.0 + i, 1000.0 + i))
    return names


def held(names: list[str]) -> list[int]:
    return [i for i, name in enumerate(names) if cache._path(name).exists()]


def test_beyond_the_limit_the_entries_used_longest_ago_go() -> None:
    names = filled(20)
    each = cache.size().bytes // 20
    assert cache.size() == cache.Size(20, 20 * each)
    assert cache.prune(20 * each) == cache.Size(0, 0)
    assert cache.load(names[0]) == BUILD  # used now: the second is the oldest
    assert cache.prune(10 * each) == cache.Size(11, 11 * each)  # down to nine tenths of the limit
    assert held(names) == [0, *range(12, 20)]
    assert cache.load(names[1]) is None


def test_half_written_files_of_killed_processes_go(own_cache: Path) -> None:
    filled(1)
    (folder,) = (own_cache / "compiled").iterdir()
    for name, age in ((".new-old", 7200.0), (".new-young", 60.0)):
        (folder / name).write_bytes(b"half")
        moment = time.time() - age
        os.utime(folder / name, (moment, moment))
    cache.prune()
    assert [path.name for path in folder.iterdir() if path.suffix != ".json"] == [".new-young"]
    assert cache.size().entries == 1


def test_a_process_that_stores_much_prunes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(cache, "prune", lambda: calls.append(1))
    monkeypatch.setattr(cache, "_stored", 0)
    for _ in range(cache._STORES):
        cache.store(cache.key("same"), ())
    assert calls == [1]


def test_folder_is_the_variables_else_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.folder() == tmp_path
    monkeypatch.delenv("EVO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.folder() == Path("/somewhere/evo")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "evo"
