from __future__ import annotations

import pytest
from pytest_httpserver import HTTPServer

from evo.errors import EvoError
from evo.llm.connect import connect, hint
from mutations.llm.prices import Price
from tests.evo.llm import world
from tests.mutations.llm.server import ScriptedModel


def environment(server: ScriptedModel) -> dict[str, str]:
    return {"OPENAI_BASE_URL": str(server.endpoint.base_url)}


def test_without_an_endpoint_or_an_operator_there_is_none(httpserver: HTTPServer) -> None:
    assert connect(world.experiment(), {}) is None
    assert connect(world.experiment(), {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}) is None
    assert connect(world.experiment(operators={"tune": 1}), environment(ScriptedModel(httpserver, []))) is None
    by_path = world.experiment(operators={"tune": 1, "mutations.rewrite.unroll:Unroll": 1})
    assert connect(by_path, environment(ScriptedModel(httpserver, []))) is None  # no path of a model's operator
    assert httpserver.log == []


def test_a_model_that_nobody_can_ask_is_no_silence(httpserver: HTTPServer) -> None:
    with pytest.raises(EvoError, match=r"--model gpt-5: the environment names no endpoint; set OPENAI_API_KEY or"):
        connect(world.experiment(), {}, "gpt-5")
    with pytest.raises(EvoError, match=r"--model gpt-5: no operator of the experiment asks a model"):
        connect(world.experiment(operators={"tune": 1}), environment(ScriptedModel(httpserver, [])), "gpt-5")


def test_the_hint_says_what_is_missing_only() -> None:
    assert "llm_edit" in hint(world.experiment(operators={"tune": 1}))
    assert hint(world.experiment()) == "set OPENAI_API_KEY or OPENAI_BASE_URL"


def test_an_operator_of_the_users_own_that_asks_a_model_counts(httpserver: HTTPServer) -> None:
    own = world.experiment(operators={"tune": 1, "mutations.llm.operators:LlmEdit": 1})
    assert connect(own, environment(ScriptedModel(httpserver, [], models=("mine",)))) is not None


def test_the_only_model_served_is_taken(httpserver: HTTPServer) -> None:
    made = connect(world.experiment(), environment(ScriptedModel(httpserver, [], models=("mine",))))
    assert made is not None
    assert [(model.name, model.price) for model in made.models] == [("mine", None)]


def test_several_models_need_a_name(httpserver: HTTPServer) -> None:
    where = environment(ScriptedModel(httpserver, [], models=("one", "two")))
    with pytest.raises(EvoError, match=r"serves 2 \(one, two\); name one: --model NAME"):
        connect(world.experiment(), where)
    made = connect(world.experiment(llm__models=[{"name": "one"}]), where, "two")
    assert made is not None
    assert [model.name for model in made.models] == ["two"]


def test_prices_come_from_the_experiment_then_from_the_list(httpserver: HTTPServer) -> None:
    models = [{"name": "gpt-5", "usd_per_million": [1, 2]}, {"name": "gpt-5-mini"}, {"name": "unheard"}]
    where = environment(ScriptedModel(httpserver, []))
    made = connect(world.experiment(llm__models=models), where)
    assert made is not None
    assert [model.price for model in made.models] == [Price(1, 2), Price(0.25, 2.0), None]
    with pytest.raises(EvoError, match=r"no price is known for unheard; give usd_per_million"):
        connect(world.experiment(llm__models=models, budget__usd=1.0), where)
