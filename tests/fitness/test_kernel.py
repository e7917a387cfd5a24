"""Kernel files: what is read, what identifies a kernel, and params."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import pytest

from fitness.expressions import Expression
from fitness.kernel import FormatChoice, KernelError, load_kernel, parse_kernel

SOURCE = """/*---
about       = "2:4 SpMM"
format      = { name = "nm24", values = "ORDER" }
require     = ["K % 32 == 0"]
constraints = ["BM * BN <= 4096", "BM >= BN"]

[[workspace]]
name = "partial"
bytes = "SPLITK * M * N * 4"
init = "zero"

[[launch]]
kernel = "spmm"
grid   = ["cdiv(N, BN)", "cdiv(M, BM)"]
block  = [128]
args   = ["W.values", "W.meta", "X", "Y", "M", "N", "K"]
memset = ["Y"]

[[launch]]
kernel = "reduce"
grid   = [1]
block  = ["32"]
shared = 1024
args   = ["partial", "Y"]
when   = "SPLITK > 1"
cluster = [2, 1, 1]
cooperative = true

[params]
BM     = { values = [16, 32, 64, 128], default = 64 }
BN     = { values = [8, 16, 32, 64],   default = 16 }
SPLITK = { values = [1, 2], default = 1 }
ORDER  = { values = [0, 1, 2], default = 1 }
---*/
extern "C" __global__ void spmm() {}
extern "C" __global__ void reduce() {}
"""


def test_reads_everything() -> None:
    header = parse_kernel(SOURCE).header
    assert header.about == "2:4 SpMM"
    assert header.require == (Expression("K % 32 == 0"),)
    assert (header.align, header.atomics, header.options) == (16, False, ())
    assert header.workspaces[0].bytes.evaluate({"SPLITK": 2, "M": 3, "N": 5}) == 120
    first, second = header.launches
    assert [e.text for e in first.grid] == ["cdiv(N, BN)", "cdiv(M, BM)", "1"]
    assert [e.text for e in first.block] == ["128", "1", "1"]
    assert first.memset == ("Y",)
    assert first.when.evaluate({}) == 1
    assert second.shared.evaluate({}) == 1024
    assert [e.evaluate({}) for e in second.cluster] == [2, 1, 1]
    assert second.cooperative
    assert header.params["BM"].values == (16, 32, 64, 128)


def test_id_is_of_source_and_sorted_params() -> None:
    kernel = parse_kernel(SOURCE)
    text = json.dumps([SOURCE, [["BM", 64], ["BN", 16], ["ORDER", 1], ["SPLITK", 1]]])
    assert kernel.id == hashlib.sha256(text.encode()).hexdigest()
    assert kernel == parse_kernel(SOURCE, params={"BM": 64})
    assert kernel != parse_kernel(SOURCE, params={"BM": 32})
    assert kernel != parse_kernel(SOURCE + "// a comment\n")
    assert len({kernel, parse_kernel(SOURCE), kernel.with_params({"BM": 128})}) == 2


def test_survives_pickling() -> None:
    kernel = parse_kernel(SOURCE, params={"BM": 32})
    back = pickle.loads(pickle.dumps(kernel))
    assert back == kernel
    assert back.header == kernel.header
    assert back.header.line("params.BN") == kernel.header.line("params.BN") != 1


def test_defines_and_format_follow_params() -> None:
    kernel = parse_kernel(SOURCE, params={"ORDER": 2})
    assert kernel.defines == ("-DBM=64", "-DBN=16", "-DSPLITK=1", "-DORDER=2")
    assert kernel.format == FormatChoice("nm24", {"values": "tile"})
    plain = parse_kernel(SOURCE.replace('{ name = "nm24", values = "ORDER" }', '"nm24"'))
    assert plain.format == FormatChoice("nm24", {"values": "row"})
    by_index = parse_kernel(SOURCE.replace('"ORDER" }', "1 }"))
    assert by_index.format == FormatChoice("nm24", {"values": "fragment"})
    assert len({plain.format, by_index.format, kernel.format}) == 3


def test_feasible() -> None:
    kernel = parse_kernel(SOURCE)
    good = dict(kernel.params)
    assert kernel.feasible(good)
    assert not kernel.feasible({**good, "BM": 128, "BN": 64})  # BM * BN
    assert not kernel.feasible({**good, "BM": 16, "BN": 32})  # BM >= BN
    assert not kernel.feasible({**good, "BM": 48})
    assert not kernel.feasible({**good, "NEW": 1})
    assert not kernel.feasible({"BM": 64})


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"BM": 48}, "48 is not among its values; choose one of [16, 32, 64, 128]"),
        ({"BMM": 16}, "unknown param; did you mean 'BM'?"),
        ({"BN": 64, "BM": 128}, "'BM * BN <= 4096' does not hold"),
    ],
)
def test_impossible_params_are_refused(params: dict[str, int], part: str) -> None:
    kernel = parse_kernel(SOURCE)
    with pytest.raises(KernelError) as changed:
        kernel.with_params(params)
    with pytest.raises(KernelError) as parsed:
        parse_kernel(SOURCE, params=params)
    assert part in str(changed.value)
    assert part in str(parsed.value)


def test_file_problems(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(SOURCE, encoding="utf-8")
    assert load_kernel(path) == parse_kernel(SOURCE)
    path.write_bytes(b"\xff" + SOURCE.encode())
    with pytest.raises(KernelError, match="not UTF-8"):
        load_kernel(path)
    path.write_text("int x;", encoding="utf-8")
    with pytest.raises(KernelError) as caught:
        load_kernel(str(path))
    assert str(caught.value).startswith(f"{path}:1: no header comment")
    with pytest.raises(KernelError, match="at most 65536"):
        parse_kernel(SOURCE + "/" * 65536)


def test_windows_line_ends_keep_the_lines() -> None:
    kernel = parse_kernel(SOURCE.replace("\n", "\r\n"))
    assert kernel.header.line("params.BM") == parse_kernel(SOURCE).header.line("params.BM")
