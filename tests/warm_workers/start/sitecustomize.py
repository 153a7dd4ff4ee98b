"""Ray starts each worker as a Python process; with this file first on the path such a process asks the server of
tests.warm_workers to fork one that has imported torch, DeepSpeed and vLLM, and lives and ends with it. So do the
drivers of a test's runs, and what loads a trained model to answer a prompt.

Whatever is not a plain worker (under nsys, with an interpreter of its own) starts as always.
"""

import json
import os
import sys

SOCKET = "PITWALL_TEST_WARM_WORKERS"
COLD_FOLDER = "PITWALL_TEST_COLD_WORKERS"
# Ray gives the second to the supervisors of its jobs, which the runner must recognize by their command line.
COLD = frozenset({"PITWALL_NSYS_SESSION", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"})
DRIVERS = ("jobs.engine", "tests.jobs.engine.", "tests.profiling.", "jobs.runner.generation")


def _order() -> dict[str, object] | None:
    """Return what to fork, None if this process is no plain worker of Ray."""
    words = sys.orig_argv[1:]
    if words[:1] == ["-m"] and words[1].startswith(DRIVERS):
        return {"argv": words, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109
    programs = [os.path.basename(word) for word in words[:2]]  # noqa: PTH119 (pathlib is slow to import)
    variables = dict(os.environ)
    if programs[:1] == ["setup_worker.py"]:
        context = next((word.partition("=")[2] for word in words if "-runtime-env-context=" in word), "{}")
        about = json.loads(context)
        is_plain = about.get("py_executable") in (None, sys.executable) and not about.get("command_prefix")
        if not is_plain or about.get("override_worker_entrypoint"):
            return None
        for name, value in (about.get("env_vars") or {}).items():
            variables[name] = os.path.expandvars(value)  # as Ray does: ${PATH}
        words = [word for word in words[1:] if "-runtime-env-context=" not in word and "--language=" not in word]
        programs = [os.path.basename(words[0])]  # noqa: PTH119
    is_cold = bool(COLD & variables.keys()) or bool(os.listdir(os.environ[COLD_FOLDER]))  # noqa: PTH208
    if programs[:1] != ["default_worker.py"] or is_cold:
        return None
    return {"argv": words, "env": variables, "cwd": os.getcwd()}  # noqa: PTH109


def _be_a_warm_worker(order: dict[str, object]) -> None:
    import signal
    import socket
    import struct

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        try:
            server.connect(os.environ[SOCKET])
        except OSError:
            return  # the server is gone: start as always
        text = json.dumps(order).encode()
        socket.send_fds(server, [struct.pack("!I", len(text))], [0, 1, 2])
        server.sendall(text)
        answer = server.recv(4, socket.MSG_WAITALL)
        if len(answer) != 4:
            return  # more variables than it has room for
        (pid,) = struct.unpack("!i", answer)
        signal.signal(signal.SIGTERM, lambda number, _frame: os.kill(pid, number))
        status = server.recv(4, socket.MSG_WAITALL)
    code = os.waitstatus_to_exitcode(struct.unpack("!i", status)[0]) if len(status) == 4 else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "sitecustomize" and os.environ.get(SOCKET) and (_wanted := _order()) is not None:
    _be_a_warm_worker(_wanted)
