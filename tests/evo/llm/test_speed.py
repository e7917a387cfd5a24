"""Our own cost of a proposal, endpoint and evaluation apart."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from evo.archive import Archive
from evo.archive.calls import calls_of
from evo.llm.connect import Connection
from mutations.llm.prices import Model
from mutations.llm.transport import Endpoint, OpenAITransport
from tests.evo.llm import world
from tests.mutations.llm.server import completion

# A server in a process of its own, so that its work is not counted as ours: HTTP/1.1, 50 ms a request.
SERVER = """
import http.server, json, sys, time
body = sys.stdin.readline().strip()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.05)
        text = json.loads(body)
        key = str(abs(hash(json.dumps(asked["messages"]))))
        source = asked["messages"][1]["content"]
        start = source.index("```cuda", source.index("## Kernel A")) + 8
        kernel = source[start:source.index("```", start)]
        answer = "REASON: one comment more\\n```cuda\\n" + kernel + "// " + key + "\\n```"
        text["choices"][0]["message"]["content"] = answer
        data = json.dumps(text).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def port() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(completion("")) + "\n")
    process.stdin.flush()
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_sixteen_concurrent_proposals_of_50_ms(port: int) -> None:
    """CPU seconds of this process count, not the wall clock: a machine under load must not fail it.

    100 proposals a second at 16 x 50 ms (which alone allows 320) leave 10 ms of our own work for each.
    """
    children = 160
    importlib.import_module("openai")  # by the first request otherwise: more than a second, once
    what = world.experiment(
        operators={"llm_rewrite": 1}, search__generations=1, search__children=children, llm__deadline_s=60.0
    )
    connection = Connection((Model("m"),), OpenAITransport(Endpoint("k", f"http://127.0.0.1:{port}/v1")))
    with Archive.memory() as archive:
        cpu, wall = time.process_time(), time.monotonic()
        summary = world.run(archive, what, connection)
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        asked = calls_of(archive, summary.run_id)
    assert len(asked) == children
    assert {call.status for call in asked} == {"ok"}
    assert cpu / children < 0.010, f"{1000 * cpu / children:.1f} ms of CPU each, {children / wall:.0f} proposals/s"
