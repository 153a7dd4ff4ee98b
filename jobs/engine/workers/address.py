"""This node's address and a free port on it, for the groups that processes of a run form."""

import socket

import psutil
import ray


def node_address() -> str:
    """Return the address by which Ray knows this node."""
    return str(ray.util.get_node_ip_address())


def held_port(host: str) -> socket.socket:
    """Return a socket that keeps a free TCP port of this node from being given to anybody else until it is closed.

    Whoever is told the number listens on it all the same, as torch and vLLM do: nobody listens on this one, and all of
    them ask for SO_REUSEADDR.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    return held


def interface_of(address: str) -> str:
    """Return the name of the network interface that has `address`, or an empty text."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.address == address for a in addresses):
            return name
    return ""
