from __future__ import annotations

import json
import re
import socket

from evo import provenance


def test_what_is_recorded() -> None:
    assert re.fullmatch(r"unknown|\d+\.\d+.*", provenance.version())
    commit = provenance.commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}\+?", commit)
    machine = json.dumps(provenance.machine())
    assert "numpy" in machine
    assert socket.gethostname() not in machine
