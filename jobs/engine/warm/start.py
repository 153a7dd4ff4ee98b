"""Run a Python program in a process that has its libraries already: `python -IS start.py SOCKET PROGRAM ARGUMENTS`.

Asks the server behind SOCKET (jobs.engine.warm.server) to fork one, hands it the standard streams, and lives and ends
with it. Where nobody answers the program starts as always. Standard library alone, and little of it: this runs first.
"""

import json
import os
import signal
import socket
import struct
import sys


def main() -> None:
    """Be the program, or stand for it."""
    path, *argv = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        pid = _ask(server, path, {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd()})  # noqa: PTH109 (slow)
        if pid > 0:
            _stand_for(server, pid)
    os.execv(sys.executable, [sys.executable, *argv])  # noqa: S606 (it is to be this process)


def _ask(server: socket.socket, path: str, order: dict[str, object]) -> int:
    """Return the id of the process that is now the program; 0 if there is none.

    A server that is still importing answers once it has: that is sooner than to import the same beside it.
    """
    try:
        server.connect(path)
        text = json.dumps(order).encode()
        socket.send_fds(server, [struct.pack("!I", len(text))], [0, 1, 2])
        server.sendall(text)
        answer = server.recv(4, socket.MSG_WAITALL)
    except OSError:
        return 0
    return int(struct.unpack("!i", answer)[0]) if len(answer) == 4 else 0


def _stand_for(server: socket.socket, pid: int) -> None:
    """Pass on what asks this process to end, and end as that one does. The server sees the end of this one."""
    signal.signal(signal.SIGTERM, lambda number, _frame: os.kill(pid, number))
    status = server.recv(4, socket.MSG_WAITALL)
    code = os.waitstatus_to_exitcode(struct.unpack("!i", status)[0]) if len(status) == 4 else 1
    if code < 0:
        if -code != signal.SIGKILL:  # which nobody can handle
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
