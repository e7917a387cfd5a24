"""`[llm]` and `[pause]` of an experiment file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from mutations.llm.access import ToolName

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Section(BaseModel):
    """As the other tables: unknown keys refused, nothing converted silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelChoice(_Section):
    """One language model, its share of the requests, and its price where it is not listed (`usd_per_million`)."""

    name: Annotated[str, Field(min_length=1)]
    weight: _Positive = 1.0
    usd_per_million: Annotated[tuple[_Price, _Price], Field(strict=False)] | None = None


class LlmSection(_Section):
    """`[llm]`: used only if the environment names an endpoint, or `transport = "folder"`.

    Attributes:
        models: to ask; empty takes the endpoint's, if it serves exactly one.
        transport: "openai" talks HTTP; "folder" writes requests as Markdown into `folder` and waits for answers.
        concurrency: requests at once. attempts: per request, while the endpoint says "later".
        deadline_s: of a whole proposal, tools and repairs included.
        max_tokens: longest answer. temperature: absent leaves it to the endpoint.
        prompt_chars: longest prompt. answer_retries: re-asks of an answer that cannot be used.
        repairs: of a child that fails its small run, before it counts.
        tools: functions the model may call. tool_steps: most replies with calls per proposal.
        references: folders `lookup` searches as well. experience: kernels of similar tasks shown in prompts.
        reviewer: another look before an evaluation. planner_every: generations between plans; 0: none.
        bandit: weigh operators and models by improvement per cost.
        module: path of PyTorch code the task was given as.
    """

    models: Annotated[tuple[ModelChoice, ...], Field(strict=False)] = ()
    transport: Literal["openai", "folder"] = "openai"
    folder: Annotated[str, Field(min_length=1)] = "llm-requests"
    concurrency: Annotated[int, Field(ge=1, le=256)] = 16
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    deadline_s: _Positive = 300.0
    max_tokens: Annotated[int, Field(ge=64)] = 8192
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    prompt_chars: Annotated[int, Field(ge=4000)] = 60_000
    answer_retries: Annotated[int, Field(ge=0, le=5)] = 1
    repairs: Annotated[int, Field(ge=0, le=5)] = 1
    tools: Annotated[tuple[ToolName, ...], Field(strict=False)] = ()
    tool_steps: Annotated[int, Field(ge=1, le=32)] = 4
    references: Annotated[tuple[str, ...], Field(strict=False)] = ()
    experience: Annotated[int, Field(ge=0, le=8)] = 0
    reviewer: bool = False
    planner_every: Annotated[int, Field(ge=0)] = 0
    bandit: bool = True
    module: str = ""


class PauseSection(_Section):
    """`[pause]`: when to ask a person. All off by default.

    Attributes:
        generations: without a better best. failure_rate: of two generations in a row.
        target_share: of a budget used up while `search.target_speedup` is not reached.
        action: "pause" ends the session with its own status and exit code; "narrow" goes on with `tune` alone.
        command: run when it pauses, with EVO_RUN, EVO_ARCHIVE and EVO_REASON in its environment.
    """

    generations: Annotated[int, Field(ge=0)] = 0
    failure_rate: _Share = 0.0
    target_share: _Share = 0.0
    action: Literal["pause", "narrow"] = "pause"
    command: str = ""
