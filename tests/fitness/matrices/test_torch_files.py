"""PyTorch checkpoints: weights only, and a clear word where PyTorch is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fitness.matrices import MatrixError, open_matrices


def test_without_torch_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(b"PK\x03\x04")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MatrixError, match=r"m\.pt: reading it needs PyTorch; pip install 'evo-kernels\[torch\]'"):
        open_matrices(path)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int8"])
def test_state_dicts(tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "m.pt"
    w = torch.tensor([[0.0, 1.0, -0.0], [2.0, 0.0, 3.0]])
    torch.save(
        {"model": {"w": w.to(getattr(torch, dtype)), "bias": torch.ones(3)}, "step": 7, "more": [w.to_sparse()]}, path
    )
    source = open_matrices(path)
    assert [entry.name for entry in source.entries] == ["model.w", "more.0"]
    assert [item.name for item in source.skipped] == ["model.bias"]
    for entry in source.entries:
        mask = entry.load().mask
        assert mask.window(slice(0, 2), slice(0, 3)).astype(int).tolist() == [[0, 1, 0], [1, 0, 1]]
    assert source.entries[0].dtype == dtype.removesuffix("fn")


def test_code_in_a_checkpoint_never_runs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    mark = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (mark.write_text, ("code ran",))

    torch.save({"w": torch.ones(2, 2), "evil": Evil()}, tmp_path / "m.pt")
    with pytest.raises(MatrixError, match="no checkpoint of weights alone"):
        open_matrices(tmp_path / "m.pt")
    assert not mark.exists()


def test_damaged_and_empty_checkpoints(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "m.pt"
    torch.save({"w": torch.from_numpy(np.ones((40, 40)))}, path)
    whole = path.read_bytes()
    for content in (b"", b"PK\x03\x04", whole[:200], b"nonsense" * 40):
        path.write_bytes(content)
        with pytest.raises(MatrixError, match=r"m\.pt"):
            open_matrices(path)
    torch.save({"step": 3}, path)
    with pytest.raises(MatrixError, match="none of its 0 tensors"):
        open_matrices(path)
