"""Search for files that break the readers: `python -m benchmarks.fuzz_readers --minutes 10`.

Valid files of every kind, and texts that look like them, are damaged: bytes changed, cut out, doubled, numbers replaced
by awkward ones. A reader must give a matrix or a MatrixError within seconds and without memory that the file does not
justify. What breaks one is written to a folder and ends the search with exit code 1.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import io
import json
import resource
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.io import mmwrite

from fitness.matrices import MatrixError, open_matrices

KINDS = (".mtx", ".mtx.gz", ".smtx", ".smtx.gz", ".npy", ".npz", ".safetensors", ".safetensors.index.json")
AWKWARD = (b"-1", b"0", b"", b"1e999", b"nan", b"99999999999999999999", b"2147483648", b"1000000000", b"x", b"\0", b"%")
SECONDS = 10.0
MEGABYTES = 600.0
"""How much the process may grow for one file: the readers' buffers, and what deflate may really hold."""


def check(path: Path, content: bytes) -> bool:
    """Write a file and read all of it; True if it was accepted.

    Raises:
        AssertionError: it took too long or too much memory; whatever else escapes is a fault as well.
    """
    path.write_bytes(content)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        for entry in open_matrices(path).entries:
            matrix = entry.load()
            assert sum(strip.nnz for strip in matrix.mask.strips()) == matrix.mask.nnz
            assert matrix.mask.column_counts.sum() == matrix.mask.nnz
        told, accepted = path.parent.name, True
    except MatrixError as error:
        told, accepted = str(error), False
    assert path.parent.name in told
    assert "\n" not in told
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    seconds = time.process_time() - start
    assert seconds < SECONDS, f"{seconds:.1f} s"
    assert grown < MEGABYTES, f"{grown:.0f} MB"
    return accepted


def files(kind: str) -> st.SearchStrategy[bytes]:
    """Valid files of a kind, small; of gzipped ones also such as were damaged before."""
    if kind.endswith(".gz"):
        inside = files(kind.removesuffix(".gz"))
        return st.one_of(inside, inside.flatmap(damaged)).map(lambda content: gzip.compress(content, 1))
    makers = {".mtx": _market, ".smtx": _smtx, ".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}
    if kind not in makers:
        return st.dictionaries(st.text(max_size=3), st.text(max_size=12), max_size=3).map(
            lambda shards: json.dumps({"weight_map": shards}).encode()
        )
    return st.builds(makers[kind], st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """A file with up to four changes."""
    for _ in range(draw(st.integers(0, 4))):
        if not content:
            break
        place = draw(st.integers(0, len(content) - 1))
        length = draw(st.integers(0, 24))
        change = draw(st.sampled_from(("byte", "cut", "double", "awkward", "end", "bytes")))
        if change == "byte":
            content = content[:place] + bytes([content[place] ^ 1 << draw(st.integers(0, 7))]) + content[place + 1 :]
        elif change == "cut":
            content = content[:place] + content[place + length :]
        elif change == "double":
            content = content[: place + length] + content[place:]
        elif change == "awkward":
            content = content[:place] + draw(st.sampled_from(AWKWARD)) + content[place + length :]
        elif change == "end":
            content = content[:place]
        else:
            content = content[:place] + draw(st.binary(max_size=24)) + content[place + length :]
    return content


def _values(rows: int, columns: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((rows, columns)) < 0.4, rng.integers(-9, 9, (rows, columns)), 0).astype(np.float32)


def _market(rows: int, columns: int, seed: int) -> bytes:
    values = _values(rows, columns, seed)
    if seed % 3 == 0:
        square = values[: min(rows, columns), : min(rows, columns)]
        values = square + square.T
    stream = io.BytesIO()
    field = ("real", "integer", "pattern", "complex")[seed % 4]
    symmetry = "symmetric" if seed % 3 == 0 else "general"
    made: Any = values if seed % 5 == 0 and field != "pattern" else sparse.coo_array(values)
    mmwrite(stream, made, field=field, symmetry=symmetry)  # type: ignore[arg-type]
    return stream.getvalue()


def _smtx(rows: int, columns: int, seed: int) -> bytes:
    made = sparse.csr_array(_values(rows, columns, seed))
    lines = (f"{rows}, {columns}, {made.nnz}", " ".join(map(str, made.indptr)), " ".join(map(str, made.indices)))
    return "\n".join((*("% comment",) * (seed % 2), *lines)).encode()


def _npy(rows: int, columns: int, seed: int) -> bytes:
    stream = io.BytesIO()
    dtype = ("<f8", "<f4", "<f2", "i1", "?", ">f4", "<c8", "<i8")[seed % 8]
    np.save(stream, _values(rows, columns, seed).astype(dtype))
    return stream.getvalue()


def _npz(rows: int, columns: int, seed: int) -> bytes:
    stream = io.BytesIO()
    values = _values(rows, columns, seed)
    kind = ("csr", "csc", "coo", "dia", "bsr", "")[seed % 6]
    if kind:
        sparse.save_npz(stream, sparse.coo_array(values).asformat(kind), compressed=seed % 2 == 0)  # type: ignore[call-overload]
    else:
        np.savez(stream, w=values, bias=np.ones(3))
    return stream.getvalue()


def _safetensors(rows: int, columns: int, seed: int) -> bytes:
    raw = _values(rows, columns, seed).astype(np.float16).tobytes()
    dtype = ("F16", "BF16", "I16", "U8")[seed % 4]
    shape = [rows, columns] if dtype != "U8" else [rows, 2 * columns]
    header = {
        "w": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(raw)]},
        "v": {"dtype": dtype, "shape": shape, "data_offsets": [len(raw), 2 * len(raw)]},
    }
    text = json.dumps(header).encode()
    return bytes(struct.pack("<Q", len(text)) + text + raw + raw)


def main() -> None:
    """Search until the time is over or something breaks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all, in turn")
    parser.add_argument("--keep", type=Path, default=Path("broken"), help="folder for files that break a reader")
    asked = parser.parse_args()
    end, tried = time.monotonic() + 60 * asked.minutes, collections.Counter[tuple[str, bool]]()
    while time.monotonic() < end:
        for kind in asked.kind or KINDS:
            _search(kind, tried, asked.keep)
    for (kind, accepted), count in sorted(tried.items()):
        print(f"{kind:<24} {'accepted' if accepted else 'refused':<9} {count}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"nothing broke in {sum(tried.values())} files; peak memory {peak:.0f} MB")


def _search(kind: str, tried: collections.Counter[tuple[str, bool]], keep: Path) -> None:
    last = b""

    @settings(
        max_examples=300, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal last
        last = data.draw(damaged(data.draw(files(kind))))
        with tempfile.TemporaryDirectory() as folder:
            tried[kind, check(Path(folder) / f"a{kind}", last)] += 1

    try:
        run()
    except BaseException:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"broken{kind}").write_bytes(last)
        print(f"a file that breaks the reader: {keep / f'broken{kind}'}", file=sys.stderr)
        raise


if __name__ == "__main__":
    main()
