"""Which TCP ports of the loopback address are free."""

import socket
import zlib
from collections.abc import Iterator

FIRST, LAST, BLOCK = (
    20_000,
    32_000,
    20,
)  # below Linux's range of outgoing ports (32768 and up), above Ray's worker range


class PortTaken(RuntimeError):
    """The port people were to open is in use."""


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def require_free(port: int, host: str = "127.0.0.1") -> None:
    """Raise PortTaken, with what to do, if the port is in use."""
    if not is_free(port, host):
        raise PortTaken(
            f"Port {port} on {host} is already in use by another program. "
            f"Stop that program, or choose another port: make up PORT={port + 1}."
        )


def free_block(count: int, *, seed: str, avoid: int = 0) -> tuple[int, ...]:
    """Return `count` neighboring free ports; the same seed looks in the same place first, other seeds elsewhere.

    `avoid`: a port that somebody is about to open. Raises: PortTaken if there is no such block.
    """
    assert count <= BLOCK
    for first in _blocks(seed):
        block = tuple(range(first, first + count))
        if avoid not in block and all(is_free(port) for port in block):
            return block
    raise PortTaken(f"No {count} neighboring free ports between {FIRST} and {LAST} for the embedded services.")


def _blocks(seed: str) -> Iterator[int]:
    num_blocks = (LAST - FIRST) // BLOCK
    start = zlib.crc32(seed.encode()) % num_blocks
    for offset in range(num_blocks):
        yield FIRST + (start + offset) % num_blocks * BLOCK
