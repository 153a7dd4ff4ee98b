"""Which of a Ray head's processes the embedded console does without. Ray calls this itself, just before it starts them.

It is named in RAY_START_HOOK (ray 2.60, ray/_private/ray_constants.py): for one of the two `ray start` has no option.
"""

import os
from typing import Protocol

HOOK = "RAY_START_HOOK"
PATH = f"{__name__}.leave_out"


class Parameters(Protocol):
    """What is used here of Ray's RayParams."""

    no_monitor: bool
    ray_client_server_port: int | None


def leave_out(parameters: Parameters, _is_head: bool) -> None:
    """Leave out the autoscaler, as there is but one node, and the server of Ray Client, which nothing here speaks."""
    parameters.no_monitor = True
    parameters.ray_client_server_port = None
    os.environ.pop(HOOK, None)  # what runs on the cluster may start a Ray of its own
