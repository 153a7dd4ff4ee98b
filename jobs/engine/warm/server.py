"""Fork Ray workers from a process that has imported the heavy libraries: `python -m jobs.engine.warm.server SOCKET`.

torch, DeepSpeed and Transformers take 4 to 9 s of a core in every rank, which is most of what a run waits for before
its first step. This process imports them once, and each rank is a fork of it. None of Pitwall's own modules is in it
when it forks: a run brings its own. It runs one thread, so that a fork is safe. Who asks is `start.py`.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from profiling.garbage import without_collector

LIBRARIES = (
    "psutil",
    "torch",
    "torch.distributed",
    "torch.profiler",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.qwen3.modeling_qwen3",
    "safetensors.torch",
)
OF_RAY = (
    "attr",
    "filelock",
    "google.protobuf.internal.builder",
    "google.protobuf.text_format",
    "jsonschema",
    "msgpack",
    "packaging.version",
    "requests",
    "tqdm",
    "uvloop",
    "yaml",
)
"""What Ray asks for when it is imported, more than half of that import. Ray itself reads a worker's variables then."""
AFTER_DEEPSPEED = ("deepspeed.module_inject.auto_ep_layer",)
"""What it imports when it makes an engine."""
OURS = ("jobs", "profiling", "console", "tests")
ROOM = "PITWALL_WARM_ROOM"
"""A variable that makes the server's environment large enough for that of any worker: see `_show_environment`."""
ROOM_BYTES = 32 << 10
BACKLOG = 64


def open_listener(path: Path) -> socket.socket:
    """Return the socket at `path`, on which requests wait until the libraries are there."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(BACKLOG)
    return listener


def preload(libraries: Iterable[str] = LIBRARIES, *, without: Iterable[str] = ()) -> None:
    """Import the libraries, and DeepSpeed; `without` are imported again by each worker. What is missing is left out."""
    from jobs.engine import deepspeed_start

    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # read by torch when it is imported; on CPU nothing is compiled
    sys.modules["ray"] = None  # type: ignore[assignment]
    with without_collector():
        for name in (*libraries, *OF_RAY):
            _import(name)
        with contextlib.suppress(ImportError):
            deepspeed_start.spare()
        for name in AFTER_DEEPSPEED:
            _import(name)
    own = [name for name in sys.modules if name.partition(".")[0] in OURS]
    for name in ("ray", *without, *own):
        sys.modules.pop(name, None)
    gc.collect()
    gc.freeze()  # else each fork's first look for garbage would copy the pages of all that is here


def _import(name: str) -> None:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)


def serve(listener: socket.socket, *, ends_children: bool = False) -> None:
    """Fork for whoever asks, until this process is ended; with `ends_children` its end is that of all forks."""
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    clients: dict[int, socket.socket] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is wake:
                wake.recv(4096)
                _reap(clients)
                continue
            client, _ = listener.accept()
            try:
                order, fds = _read_order(client)
            except (OSError, ValueError, struct.error):
                client.close()  # it starts as always
                continue
            if pid := os.fork():
                for fd in fds:
                    os.close(fd)
                with contextlib.suppress(OSError):
                    client.sendall(struct.pack("!i", pid))
                clients[pid] = client
            else:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                selector.close()
                for other in (listener, wake, woken, *clients.values()):
                    other.close()
                if ends_children:
                    end_with_parent()
                _become(order, fds, client)


def end_with_parent() -> None:
    """Have the kernel end this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _read_order(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what is to be run, and the descriptors of its streams. Raises: ValueError if it has no room."""
    head, fds, _, _ = socket.recv_fds(client, 4, 3)
    (size,) = struct.unpack("!I", head)
    order = json.loads(client.recv(size, socket.MSG_WAITALL))
    if len(_block(order["env"])) > _room()[1]:
        for fd in fds:
            os.close(fd)
        raise ValueError("more variables than there is room for")
    return order, fds


def _reap(clients: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if client := clients.pop(pid, None):
            with contextlib.suppress(OSError):
                client.sendall(struct.pack("!i", status))
            client.close()


def _become(order: Mapping[str, Any], fds: Iterable[int], client: socket.socket) -> None:
    """Be the program that was asked for; end when the process that asked does."""
    os.setsid()  # who ends the group of one worker must not end the others
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(order["env"])
    _show_environment(order["env"])
    os.chdir(order["cwd"])
    if (threads := order["env"].get("OMP_NUM_THREADS")) and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(threads))  # what the library reads from the variable when it loads
    threading.Thread(target=_end_with, args=(client,), daemon=True, name="warm-start").start()
    argv = list(order["argv"])
    is_module = argv[0] == "-m"
    if is_module:
        argv.pop(0)
    sys.argv[:] = argv
    sys.orig_argv[:] = [sys.executable, *["-m"] * is_module, *argv]
    own = [entry for entry in order["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    site = [entry for entry in sys.path if "site-packages" in entry or "/lib/python" in entry or entry.endswith(".zip")]
    sys.path[:] = [order["cwd"] if is_module else str(Path(argv[0]).parent), *own, *site]
    os._exit(_exit_code(lambda: _run(argv[0], is_module=is_module)))


def _run(program: str, *, is_module: bool) -> None:
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def _exit_code(body: Callable[[], None]) -> int:
    """Return the code with which an interpreter that runs `body` would end."""
    code: int | str | None = 0
    try:
        body()
    except SystemExit as end:
        code = end.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


def _room() -> tuple[int, int]:
    """Return where the variables lie that /proc shows of this process, and how many bytes there are for them."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, fields 50 and 51 of proc(5)
    return start, end - start


def _block(environ: Mapping[str, str]) -> bytes:
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items())


def _show_environment(environ: Mapping[str, str]) -> None:
    """Have /proc show the worker's variables, by whose marks Pitwall finds the processes of a run.

    The kernel reads them where they lay when the process began; nothing else is there any more.
    """
    start, size = _room()
    ctypes.memmove(start, _block(environ).ljust(size, b"\0"), size)


def _end_with(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Listen, import, serve."""
    listener = open_listener(Path(sys.argv[1]))
    preload()
    serve(listener)


if __name__ == "__main__":
    main()
