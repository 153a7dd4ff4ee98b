"""Tell open browsers that a run's header changed; what is lost here, the next heartbeat mends."""

import logging

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

log = logging.getLogger(__name__)


def run_changed(run_id: str) -> None:
    """Tell every web process that the run's header changed; call it after the commit."""
    layer = get_channel_layer()
    try:
        async_to_sync(layer.group_send)("runs", {"type": "run.changed", "run": run_id})
    except Exception:
        log.warning("could not announce a change of %s", run_id, exc_info=True)
