"""Content-addressed cache of finished compilations, shared by every process of the user.

One file per compilation, named by the hash of everything that went into it. Files appear by an atomic
rename, so readers never see half of one; a damaged file is told apart from an absent one, so that whoever
replaces it can say so. Failures are cached like successes: NVRTC is deterministic. Beyond `LIMIT_BYTES` the
entries used longest ago are removed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from fitness.devices.device import Compiled, Entry, Parameter
from fitness.outcome import Finding, Gate

#: Part of every key: raise it when what is stored changes meaning.
FORMAT = "1"

LIMIT_BYTES: Final = 2 * 1024**3
"""Size above which the cache is pruned; an entry takes about 0.1 to 1 MiB."""
_KEPT: Final = 0.9
"""Share of the limit that pruning leaves, so that it is not due again at once."""
_STORES: Final = 200
"""A process that stores looks at the size again after so many entries."""
_ABANDONED_S: Final = 3600.0
"""Half-written files of processes that were killed are removed after this time."""


class CacheError(OSError):
    """The cache folder cannot be used; the message names it and the variable that moves it."""


@dataclass(frozen=True)
class Damaged:
    """An entry that cannot be read back: cut off, changed, or of no known form."""

    path: Path


def folder() -> Path:
    """`$EVO_CACHE`, or `evo` in the user's cache folder."""
    chosen = os.environ.get("EVO_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evo"


def key(*parts: str) -> str:
    """Name of an entry: sha256 over the parts, each with its length, so that no two lists collide."""
    digest = hashlib.sha256()
    for part in (FORMAT, *parts):
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode())
        digest.update(encoded)
    return digest.hexdigest()


def load(name: str) -> Compiled | tuple[Finding, ...] | Damaged | None:
    """What was stored under `name`: a build, the findings of a failed one, `Damaged`, or None where there is nothing.

    Raises:
        CacheError: the file is there and cannot be read.
    """
    path = _path(name)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise _unusable(problem) from problem
    checksum, _, body = raw.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return Damaged(path)
    try:
        result = _decode(json.loads(body))
    except (ValueError, KeyError, TypeError):
        return Damaged(path)
    with contextlib.suppress(OSError):  # removed meanwhile, or of another user: it only counts as used earlier
        os.utime(path)
    return result


def store(name: str, result: Compiled | tuple[Finding, ...]) -> None:
    """Keep a result under `name`, replacing what is there.

    Raises:
        CacheError: the folder is read-only, the disk is full.
    """
    body = json.dumps(_encode(result)).encode()
    path = _path(name)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
            temporary = file.name
            file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        os.replace(temporary, path)
    except OSError as problem:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise _unusable(problem) from problem
    global _stored
    _stored += 1
    if _stored % _STORES == 0:
        prune()


_stored = 0


@dataclass(frozen=True)
class Size:
    """What the cache holds."""

    entries: int
    bytes: int


def size() -> Size:
    """Entries and their bytes; nothing where there is no cache yet."""
    sizes = [status.st_size for path, status in _files() if path.suffix == ".json"]
    return Size(len(sizes), sum(sizes))


def prune(limit_bytes: int = LIMIT_BYTES) -> Size:
    """Remove the entries used longest ago until the cache is below its limit again, and what killed writers left.

    Returns:
        What was removed. Other processes may prune, read and store at the same time.
    """
    entries = []
    for path, status in _files():
        if path.suffix == ".json":
            entries.append((status.st_mtime, status.st_size, path))
        elif time.time() - status.st_mtime > _ABANDONED_S:
            with contextlib.suppress(OSError):
                path.unlink()
    total = sum(held for _, held, _ in entries)
    if total <= limit_bytes:
        return Size(0, 0)
    removed = freed = 0
    for _, held, path in sorted(entries):
        if total - freed <= _KEPT * limit_bytes:
            break
        with contextlib.suppress(OSError):  # removed by another process, or of another user
            path.unlink()
            removed, freed = removed + 1, freed + held
    return Size(removed, freed)


def _files() -> Iterator[tuple[Path, os.stat_result]]:
    for path in (folder() / "compiled").glob("??/*"):
        with contextlib.suppress(OSError):
            yield path, path.stat()


def check_writable() -> None:
    """Fail early, with one clear line, where results could not be stored.

    Raises:
        CacheError: as `store`.
    """
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder(), prefix=".probe-"):
            pass
    except OSError as problem:
        raise _unusable(problem) from problem


def _path(name: str) -> Path:
    return folder() / "compiled" / name[:2] / f"{name}.json"


def _unusable(problem: OSError) -> CacheError:
    reason = problem.strerror or str(problem)
    return CacheError(f"cannot use the compile cache {folder()}: {reason}; set EVO_CACHE to a folder you can write to")


def _encode(result: Compiled | tuple[Finding, ...]) -> dict[str, Any]:
    if isinstance(result, tuple):
        return {"findings": [asdict(finding) for finding in result]}
    return {
        "arch": result.arch,
        "ptx": result.ptx,
        "cubin": base64.b64encode(result.cubin).decode(),
        "code_hash": result.code_hash,
        "entries": [asdict(entry) for entry in result.entries.values()],
        "warnings": [asdict(finding) for finding in result.warnings],
    }


def _decode(data: dict[str, Any]) -> Compiled | tuple[Finding, ...]:
    if "findings" in data:
        return _findings(data["findings"])
    entries = {item["name"]: _entry(item) for item in data["entries"]}
    cubin = base64.b64decode(data["cubin"])
    return Compiled(data["arch"], data["ptx"], cubin, data["code_hash"], entries, _findings(data["warnings"]))


def _entry(item: dict[str, Any]) -> Entry:
    parameters = tuple(Parameter(**parameter) for parameter in item["parameters"])
    required = tuple(item["required_block"]) if item["required_block"] else None
    cluster = tuple(item["required_cluster"]) if item["required_cluster"] else None
    return Entry(**{**item, "parameters": parameters, "required_block": required, "required_cluster": cluster})


def _findings(items: list[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(Finding(**{**item, "gate": Gate(item["gate"])}) for item in items)
