"""From the environment and the experiment to models that can be asked, or a clear word why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evo.errors import EvoError
from evo.experiment import Experiment
from evo.llm.section import ModelChoice
from evo.propose import load_operators
from mutations.llm.folder import FolderTransport
from mutations.llm.messages import Failure
from mutations.llm.prices import Model, Price, price_of
from mutations.llm.transport import Endpoint, OpenAITransport, Transport
from mutations.operator import Operator

_ENDPOINT = "set OPENAI_API_KEY or OPENAI_BASE_URL"
HINT = f"{_ENDPOINT}, and give llm_edit a weight in [operators]"
"""How to add a model."""

PERSON = "person"
"""Name of the "model" behind a folder, where the experiment gives none."""


def asks_model(operator: Operator) -> bool:
    """True for operators that need a model."""
    return bool(getattr(operator, "asks_model", False))


def hint(experiment: Experiment) -> str:
    """How to add a model to an experiment: as much as it does not say itself."""
    return _ENDPOINT if _asks(experiment) else HINT


def _asks(experiment: Experiment) -> bool:
    return any(asks_model(operator) for operator in load_operators(list(experiment.weights)).values())


@dataclass(frozen=True)
class Connection:
    """Models in use, and how they are reached."""

    models: tuple[Model, ...]
    transport: Transport


def connect(experiment: Experiment, environment: Mapping[str, str], model: str | None = None) -> Connection | None:
    """Models for an experiment; None where it asks for none, or the environment names no endpoint.

    Args:
        experiment: its `[llm]`, operators and budget count.
        environment: where OPENAI_API_KEY and OPENAI_BASE_URL are looked up.
        model: the only one to use, whatever the experiment names.

    Raises:
        EvoError: `model` cannot be asked, the endpoint cannot be reached or refuses the key, no model can be chosen,
            or a budget of dollars cannot be kept because a price is not known.
    """
    if not _asks(experiment):
        if model is not None:
            raise EvoError(f"--model {model}: no operator of the experiment asks a model", "give llm_edit a weight")
        return None
    section = experiment.llm
    choices = (ModelChoice(name=model),) if model is not None else section.models
    if section.transport == "folder":
        models = tuple(_model(choice) for choice in choices) or (Model(PERSON, 1.0, Price(0.0, 0.0)),)
        return Connection(models, FolderTransport(Path(section.folder)))
    endpoint = _endpoint(environment)
    if endpoint is None:
        if model is not None:
            raise EvoError(f"--model {model}: the environment names no endpoint", _ENDPOINT)
        return None
    transport = OpenAITransport(endpoint, section.concurrency, section.attempts)
    served = _served(transport, endpoint)
    models = tuple(_model(choice) for choice in choices or _only(served, endpoint))
    if experiment.budget.usd is not None:
        _need_prices(models)
    return Connection(models, transport)


def _endpoint(environment: Mapping[str, str]) -> Endpoint | None:
    key, url = environment.get("OPENAI_API_KEY", ""), environment.get("OPENAI_BASE_URL", "")
    return Endpoint(key or "none", url or None) if key or url else None


def _served(transport: OpenAITransport, endpoint: Endpoint) -> tuple[str, ...]:
    served = transport.models()
    if not isinstance(served, Failure):
        return served
    if served.kind == "key_refused":
        raise EvoError(f"{_where(endpoint)} refuses the key ({served.message})", "correct OPENAI_API_KEY")
    raise EvoError(
        f"{_where(endpoint)} cannot be asked ({served.message})",
        "start it, correct OPENAI_BASE_URL, or run with --no-llm",
    )


def _only(served: Sequence[str], endpoint: Endpoint) -> tuple[ModelChoice]:
    if len(served) != 1:
        shown = ", ".join(served[:5]) + (", ..." if len(served) > 5 else "")
        raise EvoError(
            f"no model is named, and {_where(endpoint)} serves {len(served)}{f' ({shown})' if served else ''}",
            'name one: --model NAME, or models = [{ name = "..." }] in [llm]',
        )
    return (ModelChoice(name=served[0]),)


def _where(endpoint: Endpoint) -> str:
    return endpoint.base_url or "the OpenAI API"


def _model(choice: ModelChoice) -> Model:
    price = Price(*choice.usd_per_million) if choice.usd_per_million is not None else price_of(choice.name)
    return Model(choice.name, choice.weight, price)


def _need_prices(models: Sequence[Model]) -> None:
    unknown = [model.name for model in models if model.price is None]
    if unknown:
        raise EvoError(
            f"budget.usd cannot be kept: no price is known for {', '.join(unknown)}",
            "give usd_per_million = [in, out] with the model in [llm] models, or limit budget.tokens instead",
        )
