"""Answers as models write them (written by hand for these tests) -> kernels, or the problem in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.kernel import Kernel, parse_kernel
from mutations.llm.messages import Reply, Usage
from mutations.llm.parse import NO_REASON, Answer, Problem, one_line, parse_answer
from mutations.testing import seed_kernel

PARENT = seed_kernel("spmm/nm24_scalar")
OLD = "    float sum = 0.0f;\n"
NEW = "    float sum = 0.0f;  // one accumulator\n"
CHILD = PARENT.source.replace(OLD, NEW)
BLOCK = f"<<<<<<< SEARCH\n{OLD}=======\n{NEW}>>>>>>> REPLACE"


def answer(text: str, finish: str = "stop", refused: str = "", parent: Kernel | None = PARENT) -> Answer | Problem:
    return parse_answer(Reply(text, "m", Usage(1, 1), finish, (), refused), parent)


GOOD = {
    "edit": f"REASON: says what it is\n\n{BLOCK}\n",
    "edit in a fence": f"REASON: says what it is\n```\n{BLOCK}\n```\n",
    "edit in a cpp fence": f"**Reason:** says what it is\n```cpp\n{BLOCK}\n```\nThat is all.",
    "longer marks": BLOCK.replace("<<<<<<<", "<<<<<<<<<").replace("=======", "==========").join(
        ["REASON: says what it is\n", "\n"]
    ),
    "json edits": json.dumps({"reason": "says what it is", "edits": [{"search": OLD, "replace": NEW}]}),
    "json edits in a fence": "Here:\n```json\n"
    + json.dumps({"reason": "says what it is", "edits": [{"search": OLD, "replace": NEW}]})
    + "\n```",
    "json with one edit, no list": json.dumps({"reason": "says what it is", "edits": {"search": OLD, "replace": NEW}}),
    "json that is the edit": json.dumps({"reason": "says what it is", "search": OLD, "replace": NEW}),
    "json list of edits": "REASON: says what it is\n```json\n"
    + json.dumps([{"search": OLD, "replace": NEW}])
    + "\n```",
    "json edits in prose": "Here it is:\n"
    + json.dumps({"reason": "says what it is", "edits": [{"search": OLD, "replace": NEW}]}, indent=2)
    + "\nThat is all.",
    "json code": json.dumps({"reason": "says what it is", "code": CHILD}),
    "file": f"REASON: says what it is\n```cuda\n{CHILD}```",
    "file in a plain fence": f"Reason - says what it is\n\n```\n{CHILD}```\n",
    "file in tildes": f"REASON: says what it is\n~~~\n{CHILD}~~~\n",
    "file without a fence": f"REASON: says what it is\n{CHILD}",
    "several fences": f"REASON: says what it is\n```\nfor (;;)\n```\n```cuda\n{CHILD}```\n```sh\nmake\n```",
    "a draft and the final file": f"REASON: says what it is\n```cuda\n{PARENT.source}```\n```cuda\n{CHILD}```",
    "carriage returns": f"REASON: says what it is\n```cuda\n{CHILD}```".replace("\n", "\r\n"),
    "includes before the header": "REASON: says what it is\n```cuda\n#include <mma.h>\n" + CHILD + "```",
    "no header": "REASON: says what it is\n```cuda\n" + CHILD.split("---*/\n", 1)[1] + "```",
}  # fmt: skip


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_every_usual_form_gives_the_child(text: str) -> None:
    found = answer(text)
    assert isinstance(found, Answer), found
    assert found.reason == "says what it is"
    without_include = found.kernel.source.replace("#include <mma.h>\n", "").replace("---*/\n\n", "---*/\n")
    assert without_include.strip() == CHILD.strip()


def test_raw_line_breaks_in_json_strings_are_forgiven() -> None:
    text = '{"reason": "two\nlines", "edits": [{"search": "float sum = 0.0f;", "replace": "float sum = 1.0f - 1;"}]}'
    found = answer(text)
    assert isinstance(found, Answer)
    assert found.reason == "two lines"


@pytest.mark.parametrize("text", [BLOCK, json.dumps({"edits": {"search": OLD, "replace": NEW}}, indent=1)])
def test_a_missing_reason_is_said(text: str) -> None:
    found = answer(text)
    assert isinstance(found, Answer)
    assert found.reason == NO_REASON


def test_without_a_reason_line_the_first_sentence_serves() -> None:
    found = answer(f"I keep one accumulator.\n\n{BLOCK}")
    assert isinstance(found, Answer)
    assert found.reason == "I keep one accumulator."


def test_a_reason_is_one_bounded_line_without_controls() -> None:
    assert one_line("a\x1b[31m\nb\t c\x00") == "a [31m b c"
    assert len(one_line("word " * 200)) <= 300


def test_the_parents_params_are_kept_where_they_fit() -> None:
    tuned = PARENT.with_params({"BM": 64, "BN": 2})
    fewer = CHILD.replace(
        "BN = { values = [1, 2, 4, 8, 16],          default = 4 }", "BN = { values = [4], default = 4 }"
    )
    found = answer(f"```\n{fewer}```", parent=tuned)
    assert isinstance(found, Answer)
    assert dict(found.kernel.params) == {"BM": 64, "BN": 4}
    narrow = CHILD.replace('"BM * BN <= 1024"', '"BM * BN <= 100"').replace("default = 32", "default = 8")
    found = answer(f"```\n{narrow}```", parent=tuned)
    assert isinstance(found, Answer)
    assert dict(found.kernel.params) == {"BM": 8, "BN": 4}  # the parent's do not fit any more


def test_a_first_kernel_needs_no_parent() -> None:
    found = answer(f"REASON: the simplest\n```cuda\n{CHILD}```", parent=None)
    assert isinstance(found, Answer)
    assert found.kernel == parse_kernel(CHILD)


BAD = {
    "empty": ("", "stop", "empty"),
    "blanks": (" \n\n", "stop", "empty"),
    "cut before it began": ("", "length", "truncated"),
    "prose": ("The kernel looks fine to me.", "stop", "no_code"),
    "refusal": ("I'm sorry, but I can't help with that.", "stop", "refusal"),
    "cut in a fence": (f"REASON: x\n```cuda\n{CHILD[:500]}", "length", "truncated"),
    "cut in an edit": (f"REASON: x\n<<<<<<< SEARCH\n{OLD}=======\n    flo", "length", "truncated"),
    "edit without its end": (f"<<<<<<< SEARCH\n{OLD}=======\n{NEW}", "stop", "bad_edit"),
    "edit of nothing": (BLOCK.replace("sum = 0.0f;\n=", "total = 1;\n="), "stop", "bad_edit"),
    "json far too deep": ('{"edits":' * 100_000, "stop", "no_code"),
    "cut json": ('{"reason": "x", "edits": [{"search": "a', "length", "truncated"),
    "json of something else": ('{"answer": 42}', "stop", "no_code"),
    "json edits of numbers": ('{"edits": [{"search": 1, "replace": 2}]}', "stop", "no_code"),
    "json of one edit of numbers": ('{"edits": {"search": 1, "replace": 2}}', "stop", "no_code"),
    "json edit without its replacement": ('{"edits": {"search": "float sum"}}', "stop", "no_code"),
    "json list of something else": ("[1, 2, 3]", "stop", "no_code"),
    "bad header": (f"```\n{CHILD.replace('require', 'requre')}```", "stop", "bad_kernel"),
    "broken toml": (f"```\n{CHILD.replace('[params]', '[params')}```", "stop", "bad_kernel"),
    "too long": (f"```\n{CHILD}//{'x' * 70_000}\n```", "stop", "bad_kernel"),
    "the parent again": (f"```\n{PARENT.source}```", "stop", "unchanged"),
    "an edit that changes nothing": (BLOCK.replace(NEW, OLD), "stop", "unchanged"),
}


@pytest.mark.parametrize(("text", "finish", "kind"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_used_is_named(text: str, finish: str, kind: str) -> None:
    found = answer(text, finish)
    assert isinstance(found, Problem), found
    assert found.kind == kind
    assert found.message
    assert "\n" not in found.message


def test_the_apis_own_refusal_counts() -> None:
    found = answer("", refused="I must\ndecline")
    assert found == Problem("refusal", "I must decline")


def test_edits_need_a_kernel() -> None:
    found = answer(BLOCK, parent=None)
    assert isinstance(found, Problem)
    assert found.kind == "bad_edit"


@settings(max_examples=150, deadline=None)
@given(
    st.text(max_size=300),
    st.sampled_from(["", BLOCK, "```cuda\n", CHILD[:300], "{", "<<<<<<< SEARCH\n", "=======\n"]),
    st.text(max_size=100),
)
def test_nothing_a_model_writes_raises(before: str, middle: str, after: str) -> None:
    for finish in ("stop", "length"):
        found = answer(before + middle + after, finish)
        assert isinstance(found, Answer | Problem)
        if isinstance(found, Answer):
            assert "\n" not in found.reason
