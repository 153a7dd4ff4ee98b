"""How the libraries between ranks say that the other end of a connection went away: told by those who are left."""

import re

NCCL = r"Watchdog caught collective operation timeout|ncclSystemError|ncclRemoteError|NCCL error|NCCL timeout"
GLOO = (
    r"(?i:gloo.*(?:timed? ?out|connection closed by peer|connection reset))|Timed out waiting \d+ms for"
    r"|Connection closed by peer \["
)

_EITHER = re.compile(f"{NCCL}|{GLOO}")


def tells_of_lost_peer(text: str) -> bool:
    """Return True for the error of a rank that lost its connection to another one."""
    return _EITHER.search(text) is not None
