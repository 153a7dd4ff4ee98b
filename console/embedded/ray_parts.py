"""Leaves out of a Ray head what nobody speaks to. Ray calls this itself, just before it starts its processes.

It is named in RAY_START_HOOK (ray 2.60, ray/_private/ray_constants.py), as `ray start` has no option for it.
"""

import os
from typing import Protocol

HOOK = "RAY_START_HOOK"
PATH = f"{__name__}.without_client_server"


class Parameters(Protocol):
    """What is used here of Ray's RayParams."""

    ray_client_server_port: int | None


def without_client_server(parameters: Parameters, _is_head: bool) -> None:
    """Leave out the server of Ray Client, which nothing here speaks."""
    parameters.ray_client_server_port = None
    os.environ.pop(HOOK, None)  # what runs on the cluster may start a Ray of its own
