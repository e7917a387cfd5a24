from __future__ import annotations

import pytest

from mutations.llm.asking import Answered, Unanswered
from mutations.llm.messages import Failure, Request, Usage, user
from mutations.llm.prices import Model, Price
from mutations.llm.recording import Call, Recording, ReplayError
from tests.mutations.llm.fakes import Desk, FakePurse, ScriptedTransport, desk, reply, sent

OTHER = Model("other", 1.0, None)
MESSAGES = [user("hello")]


def test_an_answer_is_charged_to_the_token_and_recorded() -> None:
    at = desk(reply("hi", usage=Usage(1000, 200)))
    answered = at.asker().ask(MESSAGES, "edit")
    assert isinstance(answered, Answered)
    assert (at.purse.used, at.purse.reserved) == (1200, 0)
    assert at.purse.usd == pytest.approx((1000 * 1.0 + 200 * 10.0) / 1e6)
    (call,) = at.calls
    assert (call.n, call.purpose, call.model, call.returned_model) == (3, "edit", "scripted", "scripted-2026")
    assert (call.tokens_in, call.tokens_out, call.status) == (1000, 200, "ok")
    assert call.usd == at.purse.usd
    assert call.answer == answered.reply


def test_the_next_model_is_asked_when_one_fails_and_stays_first() -> None:
    at = desk(Failure("rate_limited", "later", 4), reply("from the other"), reply("again"))
    asker = at.asker(models=(Model("scripted", 1.0, Price(1, 1)), OTHER))
    answered = asker.ask(MESSAGES, "edit")
    assert isinstance(answered, Answered)
    assert answered.model is OTHER
    assert isinstance(asker.ask(MESSAGES, "edit"), Answered)
    assert [request.model for request in sent(at)] == ["scripted", "other", "other"]
    assert [call.status for call in at.calls] == ["rate_limited", "ok", "ok"]
    assert at.calls[1].usd is None  # no price is known: none is invented
    assert at.purse.used == 300


def test_all_models_failing_is_an_outcome_with_their_reasons() -> None:
    at = desk(Failure("unreachable", "refused"), Failure("deadline", "too late"))
    unanswered = at.asker(models=(Model("a"), Model("b"))).ask(MESSAGES, "edit")
    assert unanswered == Unanswered(("a: refused", "b: too late"))
    assert (at.purse.used, at.purse.reserved) == (0, 0)


def test_what_the_budget_may_not_cover_is_not_asked() -> None:
    at = Desk(ScriptedTransport([]), FakePurse(tokens=100))
    assert isinstance(at.asker().ask(MESSAGES, "edit"), Unanswered)
    assert sent(at) == []
    assert [call.status for call in at.calls] == ["no_budget"]


def test_reserved_is_never_less_than_what_is_spent() -> None:
    seen = []

    class Watching(FakePurse):
        def settle(self, reserved: tuple[int, float], spent: tuple[int, float]) -> None:
            seen.append((reserved, spent))
            super().settle(reserved, spent)

    at = Desk(ScriptedTransport([reply("x", usage=Usage(30, 8192))]), Watching())
    at.asker().ask(MESSAGES, "edit")
    ((reserved, spent),) = seen
    assert reserved[0] >= spent[0]
    assert reserved[1] >= spent[1]


def test_a_crash_of_the_transport_gives_the_reservation_back() -> None:
    def crash(request: Request) -> Failure:
        del request
        raise RuntimeError("a bug")

    at = Desk(ScriptedTransport(crash))
    with pytest.raises(RuntimeError):
        at.asker().ask(MESSAGES, "edit")
    assert at.purse.reserved == 0


def recorded() -> list[Call]:
    at = desk(Failure("rate_limited", "later", 2), reply("one"), reply("two"))
    asker = at.asker(models=(Model("a"), OTHER))
    asker.ask(MESSAGES, "edit")
    asker.tool("lookup", '{"words": "x"}', lambda: "found")
    asker.ask([*MESSAGES, user("more")], "edit:again")
    return at.calls


def test_a_replay_gives_everything_back_and_counts_it() -> None:
    calls = recorded()
    at = Desk(None)
    asker = at.asker(models=(Model("a"), OTHER), recording=Recording(calls, strict=True))
    first = asker.ask(MESSAGES, "edit")
    assert isinstance(first, Answered)
    assert (first.reply.text, first.model) == ("one", OTHER)
    assert asker.tool("lookup", '{"words": "x"}', lambda: "not called") == "found"
    second = asker.ask([*MESSAGES, user("more")], "edit:again")
    assert isinstance(second, Answered)
    assert second.reply.text == "two"
    assert at.calls == calls
    assert at.purse.used == 300
    assert not asker.out_of_time


@pytest.mark.parametrize("purpose", ["edit", "other"])
def test_a_replay_that_comes_apart_says_where(purpose: str) -> None:
    asker = Desk(None).asker(models=(Model("a"), OTHER), recording=Recording(recorded(), strict=True))
    with pytest.raises(ReplayError, match="the requests differ from character"):
        asker.ask([user("hullo")] if purpose == "edit" else MESSAGES, purpose)


def test_a_replay_asked_for_more_than_was_recorded_ends() -> None:
    asker = Desk(None).asker()
    with pytest.raises(ReplayError, match="the recording ends before edit of scripted"):
        asker.ask(MESSAGES, "edit")


def test_a_resumed_proposal_goes_on_where_its_recording_ends() -> None:
    calls = recorded()[:2]
    at = desk(reply("fresh"))
    asker = at.asker(models=(Model("a"), OTHER), recording=Recording(calls))
    first = asker.ask(MESSAGES, "edit")
    assert isinstance(first, Answered)
    assert first.reply.text == "one"
    assert asker.tool("lookup", '{"words": "x"}', lambda: "asked anew") == "asked anew"
    second = asker.ask([*MESSAGES, user("more")], "edit:again")
    assert isinstance(second, Answered)
    assert second.reply.text == "fresh"
    assert at.purse.used == 150  # the recorded one was paid in the earlier session
    assert [call.purpose for call in at.calls] == ["tool:lookup", "edit:again"]


def test_a_resumed_proposal_asked_something_else_drops_its_recording() -> None:
    at = desk(reply("fresh"), reply("more"))
    asker = at.asker(models=(OTHER,), recording=Recording(recorded()))
    assert isinstance(asker.ask(MESSAGES, "edit"), Answered)
    assert len(sent(at)) == 1
