"""Ray workers that need not import torch, DeepSpeed and vLLM: tests start the engine some forty times."""

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from jobs.engine.warm.server import ROOM, ROOM_BYTES
from tests.services import own_environment
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
START = str(Path(__file__).parent / "start")
SERVER = "PITWALL_TEST_WARM_SERVER"  # the socket of the server that all parts of `make test` share
SOCKET = "PITWALL_TEST_WARM_WORKERS"
COLD = "PITWALL_TEST_COLD_WORKERS"  # a folder: while a file is in it, workers of that head start as always
START_SECONDS = 300.0


@contextlib.contextmanager
def cold_workers(environ: Mapping[str, str]) -> Iterator[None]:
    """Have workers of that head start as always: where what a process holds is measured.

    Several may ask for it at a time.
    """
    mark = Path(environ[COLD]) / secrets.token_hex(8)
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


@contextlib.contextmanager
def warm_server(environ: Mapping[str, str]) -> Iterator[str]:
    """Start a server that forks workers, and yield its socket; end it, and all that it forked.

    It may take a while until it answers: who needs it waits for the socket to be there.
    """
    with tempfile.TemporaryDirectory(prefix="pw-warm-", dir="/tmp") as folder:
        path = Path(folder) / "socket"
        # As many threads as Ray gives a worker of one CPU: OpenMP reads it once, and threads more than that would spin.
        own = {ROOM: "x" * ROOM_BYTES, "OMP_NUM_THREADS": "1"}
        with (Path(folder) / "log").open("wb") as log:
            command = [sys.executable, "-m", "tests.warm_workers.server", str(path)]
            server = subprocess.Popen(command, cwd=ROOT, env={**environ, **own}, stdout=log, stderr=log)
        try:
            yield str(path)
        finally:
            server.kill()
            server.wait()


@contextlib.contextmanager
def warm_workers(environ: Mapping[str, str], *, own_server: bool = False) -> Iterator[dict[str, str]]:
    """Yield the environment of a Ray head whose plain workers are forked from one that has imported the libraries.

    The server is the one of `make test`, or with `own_server` one that has the head's own path.
    """
    shared = None if own_server else os.environ.get(SERVER)
    with (
        contextlib.nullcontext(shared) if shared else warm_server(environ) as socket,
        tempfile.TemporaryDirectory(prefix="pw-cold-", dir="/tmp") as cold,
    ):
        assert socket is not None
        log = Path(socket).with_name("log")
        wait_until(Path(socket).exists, START_SECONDS, lambda: f"no warm workers: {log.read_text(errors='replace')}")
        path_of_python = os.pathsep.join((START, environ.get("PYTHONPATH", "")))
        yield {**environ, SOCKET: socket, COLD: cold, "PYTHONPATH": path_of_python}


@pytest.fixture(scope="session")
def warm_environment() -> Iterator[dict[str, str]]:
    """What a console, a Ray head or a program of tests.jobs.engine has in its environment so that it, or its workers,
    need not import the heavy libraries.
    """
    before = own_environment()
    with warm_workers(before) as environ:
        yield {name: value for name, value in environ.items() if before.get(name) != value}
