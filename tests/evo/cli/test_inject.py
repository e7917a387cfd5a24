from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from evo.cli.inject import inject
from tests.evo import archives


def test_no_archive_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text(archives.kernel().source)
    result = CliRunner().invoke(inject, ["nm24", "k.cu"])
    assert result.exit_code == 1
    assert not Path("runs").exists()
