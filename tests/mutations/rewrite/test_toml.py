"""Header edits: each gives a header that reads as meant, and keeps comments."""

from __future__ import annotations

import pytest

from fitness.kernel import parse_kernel
from mutations.rewrite.toml import (
    HeaderLayoutError,
    add_constraint,
    add_launch,
    add_param,
    add_workspace,
    remove_param,
    replace_in,
    set_default,
    set_launch,
    set_top,
)

SOURCE = """/*---
about  = "a = [1]"
format = { name = "nm24", values = "row" }  # stays
[[launch]]
kernel = "f"
grid   = ["cdiv(M, BM)", "N"]
block  = [32]
args   = ["Y", "W.values"]

[params]
BM = { values = [16, 32], default = 16 }  # stays too
---*/
extern "C" __global__ void f() {}
"""


def test_top_keys_are_replaced_or_added() -> None:
    changed = set_top(SOURCE, "format", '"dense"')
    assert parse_kernel(changed).header.format.name == "dense"
    added = set_top(SOURCE, "options", '["--fmad=false"]')
    assert parse_kernel(added).header.options == ("--fmad=false",)
    assert parse_kernel(set_top(added, "options", "[]")).header.options == ()
    assert added.count("# stays") == 2


def test_launches() -> None:
    changed = parse_kernel(set_launch(SOURCE, "grid", '["N"]')).header.launches[0]
    assert changed.grid[0].text == "N"
    assert parse_kernel(set_launch(SOURCE, "shared", '"BM * 4"')).header.launches[0].shared.text == "BM * 4"
    more = parse_kernel(add_launch(SOURCE, 'kernel = "g"\ngrid = [1]\nblock = [32]\nargs = []'))
    assert [launch.kernel for launch in more.header.launches] == ["f", "g"]
    assert list(more.header.params) == ["BM"]


def test_the_launch_to_change_must_be_the_only_one() -> None:
    two = add_launch(SOURCE, 'kernel = "g"\ngrid = [1]\nblock = [32]\nargs = []')
    with pytest.raises(HeaderLayoutError, match="several"):
        set_launch(two, "grid", "[1]")


def test_params_constraints_and_workspaces() -> None:
    source = add_param(SOURCE, "GROUP", (1, 2), 2)
    source = add_constraint(source, "BM * GROUP <= 64")
    source = add_constraint(source, "GROUP > 0")
    source = add_workspace(source, 'name = "part"\nbytes = "M * 4"')
    header = parse_kernel(set_default(source, "BM", 32)).header
    assert header.params["GROUP"].values == (1, 2)
    assert header.params["BM"].default == 32
    assert [constraint.text for constraint in header.constraints] == ["BM * GROUP <= 64", "GROUP > 0"]
    assert header.workspaces[0].name == "part"


def test_params_are_made_where_there_are_none() -> None:
    bare = SOURCE.replace("cdiv(M, BM)", "M").split("[params]")[0] + "---*/\n"
    assert parse_kernel(add_param(bare, "GROUP", (1, 2), 1)).header.params["GROUP"].default == 1


def test_no_header_is_an_error() -> None:
    with pytest.raises(HeaderLayoutError):
        set_top("int x;", "format", '"dense"')


def test_a_param_is_taken_out_where_nothing_else_needs_it() -> None:
    source = '/*---\nformat = "csr"\n\n[[launch]]\nkernel = "f"  # not ORDER\ngrid = ["BM"]\n\n[params]\n'
    source += (
        "BM    = { values = [1, 2], default = 1 }\nORDER = { values = [0, 1], default = 0 }  # of rows\n---*/\nORDER\n"
    )
    assert remove_param(source, "ORDER") == source.replace("ORDER = { values = [0, 1], default = 0 }  # of rows\n", "")
    for name in ("BM", "OTHER"):
        with pytest.raises(HeaderLayoutError):
            remove_param(source, name)


def test_a_text_is_replaced_in_the_values_of_some_keys_only() -> None:
    source = '/*---\nconstraints = [\n    "(A + 2) <= 4",\n]\n\n[[launch]]\ngrid   = ["(A + 2)"]\n'
    source += 'shared = "(A + 2) * B"\n---*/\n'
    changed = replace_in(source, ("shared", "constraints"), "(A + 2)", "(A + PAD)")
    assert changed == source.replace('"(A + 2) <=', '"(A + PAD) <=').replace('"(A + 2) *', '"(A + PAD) *')
