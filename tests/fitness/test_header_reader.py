"""Every way a header can be wrong gives one line with the file's line, the key, and the fix."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.kernel import KernelError, parse_kernel

GOOD = """/*---
format = "nm24"
align  = 16
options = ["--use_fast_math", "-maxrregcount=64", "--fmad=false"]
constraints = ["BM <= 64"]
[[workspace]]
name = "part"
bytes = 16
[[launch]]
kernel = "f"
grid = ["cdiv(M, BM)"]
block = [32]
args = ["Y"]
[[tensormap]]
name = "tm"
tensor = "X"
box = [64, "BM"]
[params]
BM = { values = [16, 32], default = 16 }
---*/
"""


def test_the_template_is_good() -> None:
    header = parse_kernel(GOOD).header
    assert header.tensormaps[0].box[1].text == "BM"
    assert header.workspaces[0].init == "poison"


@pytest.mark.parametrize(
    ("old", "new", "line", "parts"),
    [
        ('"nm24"', '"nm42"', 2, ["format: unknown format 'nm42'", "did you mean 'nm24'?"]),
        ('"nm24"', '{ name = "nm24", value = "row" }', 2, ["unknown option 'value'", "did you mean 'values'?"]),
        ('"nm24"', '{ name = "nm24", values = "rows" }', 2, ["is no choice", "['row', 'fragment', 'tile']"]),
        ('"nm24"', '{ name = "nm24", values = 3 }', 2, ["picks no choice"]),
        ('"nm24"', '{ name = "nm24", values = "BM" }', 19, ["params.BM", "pick no choice of option 'values'"]),
        ('"nm24"', "3", 2, ["names no format"]),
        ('"nm24"', '"subprocess:Popen"', 2, ["unknown format 'subprocess:Popen'"]),
        ('format = "nm24"', "", 2, ["format: missing"]),
        ("align ", "aling ", 3, ["aling: unknown key", "did you mean 'align'?"]),
        ("align  = 16", "align = 24", 3, ["align: 24 bytes"]),
        ("align  = 16", 'align = "16"', 3, ["is not an integer"]),
        ("align  = 16", "align = true", 3, ["is not an integer"]),
        ("align  = 16", 'dtypes = ["float61"]', 3, ["dtypes: 'float61' is not known", "did you mean 'float16'?"]),
        ("align  = 16", 'archs = ["hopper"]', 3, ["archs: 'hopper' is no architecture", "sm_90a"]),
        ("align  = 16", 'layouts = ["column"]', 3, ["layouts: 'column' is not known"]),
        ("-maxrregcount=64", "-I/etc", 4, ["options: compile flag '-I/etc' is not allowed", "--use_fast_math"]),
        ("-maxrregcount=64", "--fmad=maybe", 4, ["not allowed"]),
        ("BM <= 64", "BMM <= 64", 5, ["constraints: 'BMM'", "did you mean 'BM'?"]),
        ("BM <= 64", "BM <= 8", 5, ["the defaults break 'BM <= 8'"]),
        ("BM <= 64", "BM // 0", 5, ["division by zero"]),
        ('name = "part"', 'name = "a b"', 7, ["workspace[0].name", "not an identifier"]),
        ('name = "part"', 'name = "tm"', 15, ["tensormap[0].name: the name 'tm' is used twice"]),
        ("bytes = 16", 'bytes = "BM / 2"', 8, ["workspace[0].bytes", "`//`"]),
        ("bytes = 16", "bytes = 16\ninit = 'none'", 9, ["workspace[0].init"]),
        ("bytes = 16", "byts = 16", 8, ["workspace[0].byts: unknown key; did you mean 'bytes'?"]),
        ('kernel = "f"', "", 9, ["launch[0].kernel: missing"]),
        ('grid = ["cdiv(M, BM)"]', "grid = [1, 2, 3, 4]", 11, ["4 dimensions"]),
        ('grid = ["cdiv(M, BM)"]', "grid = [1.5]", 11, ["1.5 is not an expression"]),
        ('grid = ["cdiv(M, BM)"]', 'grid = ["cdv(M, BM)"]', 11, ["did you mean 'cdiv'?"]),
        ('grid = ["cdiv(M, BM)"]', f'grid = ["{"(" * 99}"]', 11, ["deeper"]),
        ("block = [32]", "", 9, ["launch[0].block: missing"]),
        ('args = ["Y"]', "args = [1]", 13, ["1 is not a string"]),
        ('args = ["Y"]', 'args = ["Y"]\ncarveout = 120', 14, ["launch[0].carveout: 120"]),
        ('args = ["Y"]', 'args = ["Y"]\npdl = 1', 14, ["is not true or false"]),
        ('box = [64, "BM"]', "box = []", 17, ["0 dimensions"]),
        ("BM = { values = [16, 32], default = 16 }", "BM = 16", 19, ["params.BM: 16 is not a table"]),
        ("default = 16", "default = 24", 19, ["default 24 is not among its values"]),
        (", default = 16", "", 19, ["params.BM.default: missing"]),
        ("[16, 32]", "[16, 16]", 19, ["repeated"]),
        ("[16, 32]", "[true, false]", 19, ["not 1 to 64 integers"]),
        ("[16, 32]", "[]", 19, ["not 1 to 64 integers"]),
        ("BM = {", "bm = {", 19, ["not a name for a param"]),
        ("BM = {", "K = {", 19, ["not a name for a param"]),
        ("BM = {", "BM == {", 19, ["not TOML: Invalid value, column 5; correct"]),
        ("[[launch]]", "[launch]", 9, ["launch"]),
    ],
)
def test_errors(old: str, new: str, line: int, parts: list[str]) -> None:
    assert old in GOOD
    with pytest.raises(KernelError) as caught:
        parse_kernel(GOOD.replace(old, new), path="some/k.cu")
    message = str(caught.value)
    assert message.startswith(f"some/k.cu:{line}: "), message
    for part in parts:
        assert part in message


def test_launch_is_needed() -> None:
    with pytest.raises(KernelError, match=r"launch: no launch is declared; add a \[\[launch\]\]"):
        parse_kernel('/*---\nformat = "dense"\n---*/\n')


def test_deep_nesting() -> None:
    with pytest.raises(KernelError, match="nested too deeply"):
        parse_kernel(GOOD.replace("align  = 16", f"align = {'[' * 20000}"))


def test_unclosed_header() -> None:
    with pytest.raises(KernelError, match="no header comment"):
        parse_kernel(GOOD.replace("---*/", ""))


def test_too_many_params() -> None:
    extra = "".join(f"P{i} = {{ values = [1], default = 1 }}\n" for i in range(40))
    with pytest.raises(KernelError, match="at most 32"):
        parse_kernel(GOOD.replace("---*/", extra + "---*/"))


def test_numbered_tables_have_their_own_lines() -> None:
    second = '[[launch]]\nkernel = "g"\ngrid = [1]\nblock = [1.0]\nargs = []\n[params]'
    with pytest.raises(KernelError) as caught:
        parse_kernel(GOOD.replace("[params]", second))
    assert (caught.value.key, caught.value.line) == ("launch[1].block", 21)


_PIECES = ["[", "]", "{", "}", '"', "=", ",", "\n", "1", "-1", "true", "1.5", '"BM"', "[[launch]]", "[params]"]
_PIECES += ["1979-05-27", "launch", "params", "values", "nan", "'''", "\\", "\x00", "é", "99999999999999999999"]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(GOOD)), st.integers(0, 12), st.sampled_from(_PIECES)), min_size=1, max_size=4)
)
def test_nothing_but_a_kernel_error_escapes(edits: list[tuple[int, int, str]]) -> None:
    text = GOOD
    for at, removed, inserted in edits:
        text = text[:at] + inserted + text[at + removed :]
    problem: KernelError | None = None
    try:
        kernel = parse_kernel(text)
    except KernelError as error:
        problem = error
    if problem is None:
        assert kernel.feasible(kernel.params)
    else:
        assert 1 <= problem.line <= text.count("\n") + 1
        assert problem.problem
        assert problem.fix
