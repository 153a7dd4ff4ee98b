"""This node's address and a free port on it, for the groups that processes of a run form."""

import socket

import psutil
import ray


def node_address() -> str:
    """Return the address by which Ray knows this node."""
    return str(ray.util.get_node_ip_address())


def free_address() -> tuple[str, int]:
    """Return this node's address and a TCP port that is free on it now."""
    host = node_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, int(probe.getsockname()[1])


def interface_of(address: str) -> str:
    """Return the name of the network interface that has `address`, or an empty text."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.address == address for a in addresses):
            return name
    return ""
