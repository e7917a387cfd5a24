"""A run on fake kernels with the real operators, client and HTTP: only endpoint and evaluator are scripted."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

import mutations
import seeds
from evo.archive import Archive
from evo.archive.calls import calls_of
from evo.experiment import Experiment
from evo.llm.connect import Connection, connect
from evo.loop import run_experiment
from evo.observer import RunSummary
from mutations.llm.recording import TOOL
from tests.evo import fakes
from tests.mutations.llm.server import KEY, Answer, ScriptedModel, completion, raw

LLM_OPERATORS = {
    name: f"mutations.llm.operators:Llm{name.title()}"
    for name in ("edit", "rewrite", "crossover", "optimise", "repair", "translate")
}
OPERATORS = {f"llm_{name}": path for name, path in LLM_OPERATORS.items()} | fakes.OPERATORS


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Fake seeds and baseline, real LLM operators, fake `tune` and `splice`."""
    folder.mkdir()
    for name in ("slow", "middle"):
        (folder / f"fake_{name}.cu").write_text(fakes.source(name))
    (folder / "dense_mma_pipelined.cu").write_text(fakes.source("dense", "dense"))

    def seed_paths(pattern: str) -> tuple[Path, ...]:
        return tuple(sorted(folder.glob(pattern.split("/")[-1] + ".cu")))

    monkeypatch.setattr(seeds, "seed_paths", seed_paths)
    monkeypatch.setattr(mutations, "OPERATORS", OPERATORS)


def experiment(**changes: Any) -> Experiment:
    """Two generations of six, mostly by a model."""
    defaults: dict[str, Any] = {
        "operators": {"llm_edit": 4, "llm_rewrite": 2, "llm_crossover": 2, "tune": 1},
        "search__generations": 2,
        "search__children": 6,
        "llm__deadline_s": 5.0,
        "llm__repairs": 0,
        "llm__attempts": 3,
    }
    return fakes.experiment(**(defaults | changes))


def source_of(prompt: str) -> str:
    """Kernel A of a prompt."""
    part = prompt[prompt.index("## Kernel A") :] if "## Kernel A" in prompt else fakes.source("slow")
    found = re.search(r"```cuda\n(.*?)```", part, re.DOTALL)
    return found[1] if found is not None else fakes.source("slow")


def child_text(asked: dict[str, Any], reason: str = "try another value") -> str:
    """A child in the form asked for: one param fixed at a value drawn from the prompt, now and then a better family."""
    prompt = asked["messages"][1]["content"]
    digest = hashlib.sha256(json.dumps(asked["messages"]).encode()).digest()
    source = source_of(prompt)
    name, value = "ABC"[digest[0] % 3], 2 ** (digest[1] % 4)
    old = re.search(rf"^{name} = .*$", source, re.MULTILINE)
    assert old is not None
    new = f"{name} = {{ values = [{value}], default = {value} }}  # {digest.hex()[:8]}"
    if "edits of kernel A" in prompt:
        return f"REASON: {reason}: {name} = {value}\n<<<<<<< SEARCH\n{old[0]}\n=======\n{new}\n>>>>>>> REPLACE"
    source = source.replace(old[0], new)
    if digest[2] % 2:
        source = source.replace('about  = "slow"', 'about  = "middle"').replace('about  = "middle"', 'about  = "fast"')
    return f"REASON: {reason}: {name} = {value}\n```cuda\n{source}```"


def tokens_for(asked: dict[str, Any]) -> dict[str, int]:
    """Usage that differs from request to request, so that sums can only be right if each counts once."""
    text = json.dumps(asked["messages"])
    digest = hashlib.sha256(text.encode()).digest()
    return {"prompt_tokens": 500 + digest[3], "completion_tokens": 100 + digest[4]}


def good(asked: dict[str, Any]) -> Answer:
    """A fitting child; a word of the reviewer, or a plan, where that is what is asked for."""
    last = asked["messages"][-1]["content"]
    if last.startswith("Review kernel B"):
        text = "ACCEPT" if tokens_for(asked)["prompt_tokens"] % 3 else "REJECT: the tail is not guarded"
    elif last.startswith("You plan an evolutionary search"):
        text = "Work on the first shape. Stop trying A = 1."
    else:
        text = child_text(asked)
    return raw(json.dumps(completion(text, usage=tokens_for(asked))))


class Server:
    """A scripted model. Its behaviour is told the request, how often it came before, and how many came in all."""

    def __init__(
        self, httpserver: HTTPServer, behaviour: Callable[[dict[str, Any], int, int], Answer] | None = None
    ) -> None:
        self._behaviour = behaviour or (lambda asked, _again, _n: good(asked))
        self._seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.model = ScriptedModel(httpserver, self._answer)

    def _answer(self, asked: dict[str, Any]) -> Answer:
        with self._lock:
            text = json.dumps(asked)
            again, total = self._seen[text], self._seen.total()
            self._seen[text] += 1
        return self._behaviour(asked, again, total)

    @property
    def environment(self) -> dict[str, str]:
        url = self.model.endpoint.base_url
        assert url is not None
        return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url}

    def connection(self, what: Experiment) -> Connection:
        made = connect(what, self.environment)
        assert made is not None
        object.__setattr__(made.transport, "_first_wait_s", 0.02)
        return made


def run(archive: Archive, what: Experiment, connection: Connection | None, **more: Any) -> RunSummary:
    """One run on the fake evaluator."""
    pool = more.pop("pool", None) or fakes.FakePool()
    return run_experiment(what, archive, pool=pool, connection=connection, **more)


def spent(summary: RunSummary, kind: str = "tokens") -> float:
    """What the run's budget says it has used."""
    (line,) = [line for line in summary.state.budget if line.kind == kind]
    assert line.reserved == pytest.approx(0.0)
    return line.used


def archived_tokens(archive: Archive, run_id: str) -> int:
    """What the archive says the run has used."""
    return sum(call.tokens_in + call.tokens_out for call in calls_of(archive, run_id))


def requests_of(archive: Archive, run_id: str) -> int:
    """Requests that reached a model, in the archive."""
    return sum(not call.purpose.startswith(TOOL) for call in calls_of(archive, run_id))
