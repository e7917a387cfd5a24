from __future__ import annotations

import pytest

from mutations.llm.edits import Edit, EditError, apply_edits

SOURCE = """int f() {
    int a = 1;
    int b = 2;

    for (int i = 0; i < 4; ++i) {
        a += b;
    }
    return a;
}
"""


def test_an_exact_edit() -> None:
    assert apply_edits(SOURCE, [Edit("    int b = 2;\n", "    int b = 3;\n")]) == SOURCE.replace("b = 2", "b = 3")


def test_a_part_of_a_line_is_enough_if_it_is_unique() -> None:
    assert apply_edits(SOURCE, [Edit("i < 4", "i < 8")]) == SOURCE.replace("i < 4", "i < 8")


def test_edits_follow_each_other() -> None:
    edits = [Edit("int b = 2;", "int b = 5;"), Edit("int b = 5;", "int b = 6;")]
    assert "int b = 6;" in apply_edits(SOURCE, edits)


def test_trailing_blanks_do_not_matter() -> None:
    drifted = "    int a = 1;  \n    int b = 2;\t\n"
    assert apply_edits(SOURCE, [Edit(drifted, "    int a = 7;\n")]) == SOURCE.replace(
        "    int a = 1;\n    int b = 2;\n", "    int a = 7;\n"
    )


def test_other_indentation_is_shifted_to_the_kernels() -> None:
    edit = Edit("for (int i = 0; i < 4; ++i) {\n    a += b;\n}", "for (int i = 0; i < 4; ++i) {\n    a -= b;\n}")
    assert apply_edits(SOURCE, [edit]) == SOURCE.replace("a += b", "a -= b")


def test_indentation_that_is_too_deep_is_taken_back() -> None:
    edit = Edit("            a += b;", "            a += b;\n            ++b;")
    assert apply_edits(SOURCE, [edit]) == SOURCE.replace("        a += b;\n", "        a += b;\n        ++b;\n")


def test_deleting_lines() -> None:
    assert apply_edits(SOURCE, [Edit("    int b = 2;\n", "")]) == SOURCE.replace("    int b = 2;\n", "")


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ("", "edit 1 of 1: the text to search is empty"),
        ("  \n", "edit 1 of 1: the text to search is empty"),
        ("int", "edit 1 of 1: the text occurs 4 times"),
        ("    }\n", None),
        ("    int a = 9;", "did you mean the line `int a = 1;`?"),
        ("something else entirely", "copy it exactly"),
    ],
)
def test_what_cannot_be_found_is_said(search: str, message: str | None) -> None:
    if message is None:
        assert apply_edits(SOURCE, [Edit(search, "")]) != SOURCE
        return
    with pytest.raises(EditError, match="edit 1 of 1") as error:
        apply_edits(SOURCE, [Edit(search, "x")])
    assert message in str(error.value)


def test_text_that_occurs_twice_only_without_blanks_is_refused() -> None:
    source = "  a();\n    a();\n"
    with pytest.raises(EditError, match="occurs 2 times"):
        apply_edits(source, [Edit("a(); ", "b();")])
