"""safetensors: one layer at a time, no torch, nothing believed about offsets."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fitness.matrices import MatrixError, open_matrices
from fitness.matrices.safetensors import DTYPES

NAMES = {ours: name for name, (ours, _) in DTYPES.items()}


def write(path: Path, tensors: Mapping[str, tuple[str, Any]]) -> Path:
    """A .safetensors file of name -> (dtype of the format, array)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def pruned(dtype: Any, shape: tuple[int, ...] = (66, 40), density: float = 0.4, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < density, 1 + rng.random(shape), -0.0).astype(dtype)


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"])
def test_every_type_of_weights(tmp_path: Path, dtype: str) -> None:
    array = pruned(DTYPES[dtype][1])
    path = write(tmp_path / "m.safetensors", {"a": ("F32", np.ones((3, 3), np.float32)), "w": (dtype, array)})
    entry = open_matrices(path).entries[1]
    assert (entry.name, entry.shape, entry.dtype) == ("w", (66, 40), DTYPES[dtype][0])
    mask = entry.load().mask
    np.testing.assert_array_equal(mask.window(slice(0, 66), slice(0, 40)), array.astype(np.float64) != 0)


def test_vectors_and_indices_are_skipped(tmp_path: Path) -> None:
    source = open_matrices(
        write(
            tmp_path / "m.safetensors",
            {
                "w": ("F16", pruned(np.float16)),
                "bias": ("F16", np.ones(66, np.float16)),
                "positions": ("I64", np.ones((4, 4), np.int64)),
                "empty": ("F16", np.ones((0, 4), np.float16)),
            },
        )
    )
    assert [entry.name for entry in source.entries] == ["w"]
    assert {item.name: item.reason for item in source.skipped}["positions"].startswith("int64 holds positions")
    assert len(source.skipped) == 3


def shards(folder: Path) -> Path:
    write(folder / "model-1.safetensors", {"a": ("F16", pruned(np.float16)), "stray": ("F16", pruned(np.float16))})
    write(folder / "model-2.safetensors", {"b": ("BF16", pruned(ml_dtypes.bfloat16, seed=1))})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    return index


def test_sharded_models(tmp_path: Path) -> None:
    for path in (shards(tmp_path), tmp_path):
        source = open_matrices(path)
        assert [entry.name for entry in source.entries] == ["a", "b"]
        assert source.entries[1].load().dtype == "bfloat16"


def test_one_model_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {"w": ("F16", pruned(np.float16))})
    assert open_matrices(tmp_path).kind == "safetensors"
    write(tmp_path / "other.safetensors", {"w": ("F16", pruned(np.float16))})
    with pytest.raises(MatrixError, match="or several"):
        open_matrices(tmp_path)


def refused(path: Path) -> str:
    with pytest.raises(MatrixError) as caught:
        open_matrices(path)
    return str(caught.value)


def test_broken_shards(tmp_path: Path) -> None:
    index = shards(tmp_path)
    for text in ("{", "[]", '{"weight_map": []}', "{}"):
        index.write_text(text)
        assert "no index of a sharded model" in refused(index)
    index.write_text(json.dumps({"weight_map": {"a": "../model-1.safetensors"}}))
    assert "is not in its folder" in refused(index)
    index.write_text(json.dumps({"weight_map": {"c": "model-1.safetensors"}}))
    assert "'c' is not in it" in refused(index)


def test_damaged_files(tmp_path: Path) -> None:
    path = write(tmp_path / "m.safetensors", {"w": ("F16", pruned(np.float16))})
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    for content, reason in (
        (b"", "no safetensors file"),
        (b"\xff" * 100, "no safetensors file"),
        (struct.pack("<Q", 4) + b"nope" + whole, "no JSON table"),
        (struct.pack("<Q", 2) + b"[]" + whole, "no JSON table"),
        (whole[:-1], "ends after the file"),
        (whole.replace(b"[66, 40]", b"[66, 41]"), "has 5280 bytes"),
        (whole.replace(b"[66, 40]", b"[66,-40]"), "lacks dtype, shape or offsets"),
        (whole.replace(b'"shape"', b'"shale"'), "lacks dtype, shape or offsets"),
        (whole.replace(b"data_offsets", b"data_offse_s"), "lacks dtype, shape or offsets"),
        (whole[: 8 + length], "ends after the file"),
    ):
        path.write_bytes(content)
        assert reason in refused(path)


def test_only_the_layer_asked_for_is_read(tmp_path: Path) -> None:
    """A layer whose bytes are cut away does not keep the others from being read."""
    path = write(tmp_path / "m.safetensors", {"a": ("F16", pruned(np.float16)), "b": ("F16", pruned(np.float16))})
    source = open_matrices(path)
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - 66 * 40 * 2)
    assert source.entries[0].load().mask.nnz > 0


def test_the_library_reads_what_the_tests_write(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    array = pruned(np.float16)
    np.testing.assert_array_equal(
        library.load_file(write(tmp_path / "m.safetensors", {"w": ("F16", array)}))["w"], array
    )
