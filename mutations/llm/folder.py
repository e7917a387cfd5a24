"""Requests as Markdown files for a person or a model without an API; answers are files beside them.

`<folder>/<key>.md` holds the request, with how to answer; the answer is `<folder>/<key>.answer.md`, the text
alone. The key is a hash of the request, so that a repeated run finds the answers of the one before.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Final

from mutations.llm.deadline import Deadline
from mutations.llm.messages import Failure, Message, Reply, Request, Usage

_LOOK_EVERY_S: Final = 0.5
_MOST_BYTES: Final = 1024 * 1024


class FolderTransport:
    """Writes requests, waits for answers until the deadline. Tokens are counted as none: nobody is paid."""

    def __init__(self, folder: Path, look_every_s: float = _LOOK_EVERY_S) -> None:
        self._folder = folder
        self._look_every_s = look_every_s

    def complete(self, request: Request, deadline: Deadline) -> Reply | Failure:
        """The content of the answer file, once it is there."""
        key = hashlib.sha256(request.text.encode()).hexdigest()[:16]
        question, answer = self._folder / f"{key}.md", self._folder / f"{key}.answer.md"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not question.exists():
                _write(question, _markdown(request, answer.name))
            while not answer.exists():
                if not deadline.sleep(self._look_every_s):
                    return Failure("deadline", f"no answer in {answer.name} within the deadline")
            text = _read(answer)
        except OSError as error:
            return Failure("unreachable", f"folder {self._folder.name}: {error.strerror or error}")
        return Reply(text, request.model, Usage(0, 0))


def _write(path: Path, text: str) -> None:
    """Whole or not at all: whoever watches the folder never sees half a request."""
    draft = path.with_suffix(".part")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def _read(path: Path) -> str:
    data = path.read_bytes()[:_MOST_BYTES]
    return data.decode("utf-8", "replace")


def _markdown(request: Request, answer: str) -> str:
    parts = [f"<!-- Answer in {answer}, with the answer alone: no comment like this one. -->"]
    parts += [_turn(message) for message in request.messages]
    if request.tools:
        names = ", ".join(tool["function"]["name"] for tool in request.tools)
        parts.append(f"<!-- Tools ({names}) cannot be called from a file. -->")
    return "\n\n".join(parts) + "\n"


def _turn(message: Message) -> str:
    calls = message.get("tool_calls")
    extra = f"\n\n```json\n{json.dumps(calls, indent=1)}\n```" if calls else ""
    return f"# {message['role']}\n\n{message['content']}{extra}"
