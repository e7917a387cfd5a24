from __future__ import annotations

import json
import re
import socket
from importlib import metadata
from pathlib import Path

import pytest

from evo import provenance


def test_the_version_is_the_checkouts() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\nversion = "{provenance.version()}"\n' in project


def test_without_a_checkout_it_is_the_installed_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    monkeypatch.setattr(metadata, "version", lambda name: f"{name} 7")
    assert provenance.version() == "evo-kernels 7"
    assert provenance.commit() is None


def test_what_is_recorded() -> None:
    commit = provenance.commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}\+?", commit)
    machine = json.dumps(provenance.machine())
    assert "numpy" in machine
    assert socket.gethostname() not in machine
