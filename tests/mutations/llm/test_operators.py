"""The operators with scripted answers (written by hand): children, refusals, tools, repairs, reviews."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import pytest

import mutations
from fitness.kernel import Kernel, parse_kernel
from fitness.outcome import CompileFailed, Finding, Gate, Outcome, Timed
from mutations.llm.access import Access, Settings
from mutations.llm.messages import Failure, Reply, Request
from mutations.llm.operators import LlmEdit
from mutations.operator import Context, Judged, Operator, Proposal, Refusal, Unavailable
from mutations.testing import OperatorContract, context, judged, nm24_task, seed_kernel, timed
from tests.mutations.llm.fakes import Desk, ScriptedTransport, desk, reply, sent
from tests.mutations.llm.test_prompt import FAILURES

TASK = nm24_task()
SCALAR = seed_kernel("spmm/nm24_scalar")
PARENT = judged(SCALAR, 1, timed(TASK, (9.0, 40.0)))
OLD, NEW = "float sum = 0.0f;", "float sum = 0.0f;  // kept in a register"
EDIT = f"REASON: keep the sum in a register\n<<<<<<< SEARCH\n    {OLD}\n=======\n    {NEW}\n>>>>>>> REPLACE"
CHILD = SCALAR.source.replace(OLD, NEW)
FILE = f"REASON: another idea altogether\n```cuda\n{CHILD}```"


class Contract(OperatorContract):
    """Every operator against a model that answers any prompt with a fitting child."""

    name = ""

    def operator(self) -> Operator:
        return mutations.load_operator(self.name)

    def parents(self) -> tuple[Judged, ...]:
        kernels = (SCALAR, seed_kernel("spmm/nm24_vector"))[: self.operator().arity]
        outcomes: list[Outcome] = [timed(TASK, (9.0, 40.0)), timed(TASK, (8.0, 60.0))]
        if self.name == "llm_repair":
            outcomes = [FAILURES["wrong_result"]]
        return tuple(judged(kernel, n, outcomes[n]) for n, kernel in enumerate(kernels))

    def surroundings(self, seed: int = 0, tried: Collection[str] = ()) -> Context:
        def answer(request: Request) -> Reply:
            return reply(EDIT if "edits of kernel A" in request.messages[1]["content"] else FILE)

        made = Desk(ScriptedTransport(answer)).context(tried=list(tried))
        return Context(TASK, made.target, context(TASK, seed=seed).rng, (), made.ledger, made.library, made.recorder,
                       made.llm)  # fmt: skip


class TestLlmEdit(Contract):
    name = "llm_edit"


class TestLlmRewrite(Contract):
    name = "llm_rewrite"


class TestLlmCrossover(Contract):
    name = "llm_crossover"


class TestLlmOptimise(Contract):
    name = "llm_optimise"


class TestLlmRepair(Contract):
    name = "llm_repair"


class TestLlmTranslate(Contract):
    name = "llm_translate"


def propose(
    at: Desk,
    settings: Settings | None = None,
    *,
    name: str = "llm_edit",
    parents: Sequence[Judged] = (PARENT,),
    tried: Sequence[str] = (),
) -> Proposal | Refusal:
    return mutations.load_operator(name).propose(parents, at.context(settings, tried=tried))


def test_a_child_says_who_made_it_and_why() -> None:
    child = propose(desk(reply(EDIT)))
    assert isinstance(child, Proposal)
    assert child.kernel.source == CHILD
    assert (child.reason, child.model) == ("keep the sum in a register", "scripted")


def test_without_a_model_the_operator_says_so() -> None:
    child = LlmEdit().propose([PARENT], context(TASK))
    assert child == Unavailable("no model is in use")


def test_without_an_answer_it_is_unavailable_with_the_reason() -> None:
    child = propose(desk(Failure("unreachable", "connection refused")))
    assert isinstance(child, Unavailable)
    assert "scripted: connection refused" in child.why


@pytest.mark.parametrize(
    "first", ["", "no code at all", EDIT.replace(OLD, "double total;"), EDIT.replace(NEW, OLD)],
    ids=["empty", "prose", "edit of nothing", "unchanged"],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_is_asked_for_once_more(first: str) -> None:
    at = desk(reply(first), reply(EDIT))
    child = propose(at)
    assert isinstance(child, Proposal)
    again = sent(at)[1].messages
    assert [message["role"] for message in again] == ["system", "user", "assistant", "user"]
    assert "could not be used" in again[3]["content"]
    assert "<<<<<<< SEARCH" in again[3]["content"]
    assert [call.purpose for call in at.calls] == ["edit", "edit:again"]


def test_a_second_bad_answer_is_a_refusal_and_no_third_is_asked_for() -> None:
    at = desk(reply("nothing"), reply("nothing again"))
    child = propose(at)
    assert type(child) is Refusal
    assert child.why.startswith("scripted: no code: ")
    assert len(sent(at)) == 2


def test_a_model_that_declines_is_not_pressed() -> None:
    at = desk(reply("I'm sorry, I cannot help with that."))
    child = propose(at)
    assert isinstance(child, Refusal)
    assert "refusal" in child.why
    assert len(sent(at)) == 1


def test_a_kernel_the_run_has_already_is_asked_for_again() -> None:
    other = EDIT.replace("kept in a register", "another comment")
    at = desk(reply(EDIT), reply(other))
    child = propose(at, tried=[parse_kernel(CHILD).id])
    assert isinstance(child, Proposal)
    assert "already part of the run" in sent(at)[1].messages[3]["content"]


def test_a_failure_after_a_bad_answer_keeps_the_problem() -> None:
    child = propose(desk(reply("nothing"), Failure("deadline", "too late")))
    assert type(child) is Refusal
    assert "no code" in child.why


# tools


def test_tools_are_served_and_recorded() -> None:
    source = json.dumps({"source": CHILD})
    at = desk(reply("", ("compile", source), ("archive_search", '{"words": "split"}')), reply(EDIT))
    child = propose(at, Settings(tools=("compile", "archive_search"), repairs=0))
    assert isinstance(child, Proposal)
    assert [tool["function"]["name"] for tool in sent(at)[0].tools] == ["compile", "archive_search"]
    results = [message for message in sent(at)[1].messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["call_0", "call_1"]
    assert results[0]["content"].startswith("passed up to gate compile")
    assert results[1]["content"] == "found split"
    assert [(kernel.source, depth) for kernel, depth in at.services.judged] == [(CHILD, Gate.COMPILE)]
    assert [call.purpose for call in at.calls] == ["edit", "tool:compile", "tool:archive_search", "edit"]


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("rm", "{}", "there is no tool rm"),
        ("simulate", "{}", "there is no tool simulate"),  # known, but switched off
        ("compile", "not json", "the arguments are not JSON"),
        ("compile", '{"path": "/etc/passwd"}', 'must be an object with the text "source"'),
        ("compile", "[]", 'must be an object with the text "source"'),
        ("compile", '{"source": "int main() {}"}', "no header comment"),
        ("trace", '{"source": "x"}', '"line" must be a whole number from 1'),
        ("trace", '{"source": "x", "line": true}', '"line" must be a whole number from 1'),
        ("trace", '{"source": "x", "line": 3, "thread": [0, -1, 0]}', '"thread" must be three whole numbers from 0'),
        ("trace", '{"source": "x", "line": 3, "block": [1]}', '"block" must be three whole numbers from 0'),
    ],
)
def test_calls_that_make_no_sense_are_answered(name: str, arguments: str, says: str) -> None:
    at = desk(reply("", (name, arguments)), reply(EDIT))
    assert isinstance(propose(at, Settings(tools=("compile", "trace"), repairs=0)), Proposal)
    assert says in sent(at)[1].messages[-1]["content"]
    assert at.services.judged == []


def test_a_trace_is_asked_for_by_line_thread_and_block() -> None:
    asked = json.dumps({"source": CHILD, "line": 12, "thread": [3, 0, 0], "more": "ignored"})
    at = desk(reply("", ("trace", asked)), reply(EDIT))
    assert isinstance(propose(at, Settings(tools=("trace",), repairs=0)), Proposal)
    schema = sent(at)[0].tools[0]["function"]["parameters"]
    assert schema["required"] == ["source", "line"]
    assert sent(at)[1].messages[-1]["content"].endswith("12 (3, 0, 0) (0, 0, 0)")


def test_a_model_that_only_calls_tools_is_stopped() -> None:
    loop = reply("", ("archive_search", '{"words": "x"}'))
    at = Desk(ScriptedTransport(lambda request: loop if request.tools else reply(EDIT)))
    child = propose(at, Settings(tools=("archive_search",), tool_steps=3, repairs=0))
    assert isinstance(child, Proposal)
    assert len(sent(at)) == 4  # three with tools, the last without
    at = Desk(ScriptedTransport(lambda _: loop))
    child = propose(at, Settings(tools=("archive_search",), tool_steps=3, repairs=0))
    assert type(child) is Refusal
    assert len(sent(at)) == 5  # one more asks for a usable answer


# repairs before the child counts


def compile_error(kernel: Kernel, depth: Gate) -> Outcome:
    bad = "broken" in kernel.source
    return CompileFailed(Gate.COMPILE, (Finding(Gate.COMPILE, "compile_error", "no", 30),)) if bad else Timed(depth)


def test_a_child_that_does_not_compile_is_repaired_first() -> None:
    broken = EDIT.replace("kept in a register", "broken")
    fix = "REASON: not broken any more\n<<<<<<< SEARCH\n// broken\n=======\n// whole\n>>>>>>> REPLACE"
    at = desk(reply(broken), reply(fix))
    at.services.verdict = compile_error
    child = propose(at, Settings(repairs=2))
    assert isinstance(child, Proposal)
    assert "// whole" in child.kernel.source
    assert child.reason == "keep the sum in a register; repaired (compile): not broken any more"
    assert [call.purpose for call in at.calls] == ["edit", "repair:compile"]
    assert [depth for _, depth in at.services.judged] == [Gate.SMALL_RUN, Gate.SMALL_RUN]


def test_a_repair_that_fails_leaves_the_child_as_it_was() -> None:
    broken = EDIT.replace("kept in a register", "broken")
    at = desk(reply(broken), reply("I do not know"), reply("really not"))
    at.services.verdict = compile_error
    child = propose(at, Settings(repairs=1))
    assert isinstance(child, Proposal)
    assert "broken" in child.kernel.source


def test_repairs_can_be_switched_off() -> None:
    at = desk(reply(EDIT))
    propose(at, Settings(repairs=0))
    assert at.services.judged == []


@pytest.mark.parametrize("kind", FAILURES)
def test_recorded_repairs_of_every_kind(kind: str) -> None:
    at = desk(reply(EDIT))
    child = propose(at, name="llm_repair", parents=[judged(SCALAR, 1, FAILURES[kind])])
    assert isinstance(child, Proposal)
    assert at.calls[0].purpose == f"repair:{kind}"


def test_what_passed_is_not_repaired() -> None:
    child = propose(desk(), name="llm_repair")
    assert isinstance(child, Refusal)
    assert "nothing to repair" in child.why


# formats


def test_a_child_may_change_the_format() -> None:
    dense = SCALAR.source.replace('format      = { name = "nm24", values = "row" }', 'format      = "dense"').replace(
        '"W.meta", ', ""
    )
    child = propose(desk(reply(f"REASON: read W densely\n```\n{dense}```")), name="llm_translate")
    assert isinstance(child, Proposal)
    assert child.kernel.format.name == "dense"


# the reviewer


def reviewed(word: str, trust: str, n: int = 3) -> tuple[Proposal | Refusal, Desk]:
    at = desk(reply(EDIT), reply(word))
    access = at.access(Settings(repairs=0), review=trust)
    object.__setattr__(access, "n", n)
    made = at.context()
    return LlmEdit().propose([PARENT], Context(TASK, made.target, made.rng, (), made.ledger, made.library,
                                               made.recorder, access)), at  # fmt: skip


@pytest.mark.parametrize(
    ("word", "trust", "n", "refused"),
    [
        ("REJECT: the tail of N is not guarded", "trusted", 3, True),
        ("REJECT: the tail of N is not guarded", "trusted", 4, False),  # one of four is evaluated all the same
        ("REJECT: the tail of N is not guarded", "watched", 3, False),
        ("ACCEPT", "trusted", 3, False),
        ("I think it may be wrong", "trusted", 3, False),
        ("", "trusted", 3, False),
    ],
)
def test_the_reviewer_acts_only_where_it_is_trusted(word: str, trust: str, n: int, refused: bool) -> None:
    child, at = reviewed(word, trust, n)
    assert isinstance(child, Refusal) == refused
    assert [call.purpose for call in at.calls] == ["edit", "review"]
    if isinstance(child, Refusal):
        assert child.why == "the reviewer rejects it: the tail of N is not guarded"


def test_a_reviewer_that_is_off_is_not_asked() -> None:
    _, at = reviewed("REJECT", "off")
    assert [call.purpose for call in at.calls] == ["edit"]


def test_access_is_plain() -> None:
    assert Access(1, desk().asker(), desk().services).review == "off"
