"""A port that is told to others stays free until somebody listens on it."""

import socket
from datetime import timedelta

import pytest
import torch.distributed as dist

from jobs.engine.workers.address import held_port

HOST = "127.0.0.1"


def given(count: int) -> set[int]:
    """Return the ports that the system gives to so many who ask for any."""
    found = set()
    for _ in range(count):
        with socket.socket() as other:
            other.bind((HOST, 0))
            found.add(other.getsockname()[1])
    return found


def test_nobody_else_is_given_the_port_and_torch_listens_on_it() -> None:
    with held_port(HOST) as held:
        port = held.getsockname()[1]
        assert port not in given(30_000)  # of 28,000 there are
        store = dist.TCPStore(HOST, port, 2, is_master=True, wait_for_workers=False)
        other = dist.TCPStore(HOST, port, 2, is_master=False, timeout=timedelta(seconds=60))
    other.set("key", "value")
    assert store.get("key") == b"value"


def test_who_does_not_listen_lets_go_of_it() -> None:
    held = held_port(HOST)
    port = held.getsockname()[1]
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind((HOST, port))
    held.close()
    with socket.socket() as plain:
        plain.bind((HOST, port))
