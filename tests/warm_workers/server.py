"""Fork Ray workers from a process that has imported the heavy libraries: `python -m tests.warm_workers.server SOCKET`.

A worker's own imports (torch, DeepSpeed, transformers, vLLM: 4 to 9 s of a core) are most of what a run of the engine
costs here, and a run starts four of them. None of Pitwall's modules is imported: workers import them as always, from
their own path. The server runs one thread, so that a fork is safe, and ends with the process that started it.
"""

import contextlib
import ctypes
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
from pathlib import Path
from typing import Any

HEAVY = (
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
    "vllm",
    "vllm.entrypoints.llm",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.engine.core",
    "vllm.v1.engine.core_client",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen2",
    "vllm.model_executor.models.qwen3",
    "vllm.distributed.weight_transfer.factory",
    "vllm.model_executor.model_loader.reload",
)
# What Ray itself asks for when it is imported: more than half of that import.
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
AFTER_DEEPSPEED = ("deepspeed.module_inject.auto_ep_layer",)  # which it imports when it makes an engine
ASK_FOR_RAY = ("vllm.v1.executor.ray_utils", "vllm.v1.metrics.ray_wrappers")
PR_SET_PDEATHSIG = 1
# A variable that makes the server's environment large enough for that of any worker: see `_show_environment`.
ROOM = "PITWALL_TEST_ROOM"
ROOM_BYTES = 32 << 10


def preload() -> None:
    """Import what workers take long to import; a module that is not there is left to the worker."""
    from jobs.engine import deepspeed_start

    os.environ.update({"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"})
    # Read by torch when it is imported; what a worker that generates sets for itself (jobs/engine/devices/cpu.py).
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    # Ray reads a worker's variables when it is imported: that is the worker's own to do, and of vLLM's modules those
    # that look for it.
    sys.modules["ray"] = None  # type: ignore[assignment]
    for name in (*HEAVY, *OF_RAY):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    deepspeed_start.spare()
    for name in AFTER_DEEPSPEED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in ("ray", *ASK_FOR_RAY):
        sys.modules.pop(name, None)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("jobs", "profiling", "tests", "console")]:
        if name != "tests" and not name.startswith("tests.warm_workers"):
            del sys.modules[name]


def serve(path: Path) -> None:
    """Answer until the process that started this one ends."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path.with_suffix(".new")))
    listener.listen(64)
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    path.with_suffix(".new").rename(path)  # who finds the socket is answered
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    asked: dict[int, socket.socket] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is wake:
                wake.recv(4096)
                _reap(asked)
                continue
            client, _ = listener.accept()
            head, fds, _, _ = socket.recv_fds(client, 4, 3)
            (size,) = struct.unpack("!I", head)
            order = json.loads(client.recv(size, socket.MSG_WAITALL))
            if pid := os.fork():
                for fd in fds:
                    os.close(fd)
                client.sendall(struct.pack("!i", pid))
                asked[pid] = client
            else:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                selector.close()
                for other in (listener, wake, woken, *asked.values()):
                    other.close()
                _become(order, fds, client)


def _reap(asked: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if client := asked.pop(pid, None):
            with contextlib.suppress(OSError):
                client.sendall(struct.pack("!i", status))
            client.close()


def _become(order: dict[str, Any], fds: list[int], client: socket.socket) -> None:
    """Be the worker or driver that was asked for; end when the process that asked does."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # who ends a worker's group must not end that of the tests
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(order["env"])
    _show_environment(order["env"])
    os.chdir(order["cwd"])
    if threads := order["env"].get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(threads))  # what the library reads from the variable when it loads
    threading.Thread(target=_end_with, args=(client,), daemon=True, name="test-warm-worker").start()
    argv, is_module = order["argv"], order.get("is_module", False)
    sys.argv[:] = argv
    sys.orig_argv[:] = [sys.executable, *["-m"] * is_module, *argv]
    own = [entry for entry in (order["env"].get("PYTHONPATH") or "").split(os.pathsep) if entry]
    site = [entry for entry in sys.path if "site-packages" in entry or "/lib/python" in entry or entry.endswith(".zip")]
    sys.path[:] = [order["cwd"] if is_module else str(Path(argv[0]).parent), *own, *site]
    code: int | str | None = 0
    try:
        if is_module:
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _show_environment(environ: dict[str, str]) -> None:
    """Have /proc show the worker's variables, by whose marks Pitwall finds the processes of a run.

    The kernel reads them where they lay when the process began; nothing else is there any more.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])  # env_start and env_end, fields 50 and 51 of proc(5)
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environ.items())
    assert len(block) <= end - start, f"{len(block)} bytes of environment do not fit into {ROOM}"
    ctypes.memmove(start, block.ljust(end - start, b"\0"), end - start)


def _end_with(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        client.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Import, check that a fork is safe, serve."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    preload()
    serve(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
