"""What Ray's workers of an attempt find in their environment, kept in Ray's own store while it runs.

    python -m jobs.runner.variables.ray_workers put    # a JSON object of names and values on standard input
    python -m jobs.runner.variables.ray_workers drop

`take` is the hook by which each worker sets them before it does anything (`worker_process_setup_hook`). Ray lists
runtime environments, and arguments of processes, to whoever may see its dashboard; the store it does not.
"""

import json
import os
import sys
from typing import Any

_NAMESPACE = b"pitwall"


def take() -> None:
    """Set the variables of the attempt in this worker of Ray. Raises: RuntimeError where Ray has none."""
    import ray

    stored = ray._private.worker.global_worker.gcs_client.internal_kv_get(_key(), _NAMESPACE)
    if stored is None:
        raise RuntimeError("The variables of this run are not in Ray's store: its runner has ended, or Ray restarted.")
    os.environ.update(json.loads(stored))


def main(verb: str) -> None:
    """Put what standard input holds into the store, or drop it there."""
    if verb == "put":
        _client().internal_kv_put(_key(), sys.stdin.buffer.read(), True, _NAMESPACE)
    else:
        _client().internal_kv_del(_key(), False, _NAMESPACE)


def _client() -> Any:
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

    return GcsClient(address=os.environ["RAY_ADDRESS"])


def _key() -> bytes:
    return f"variables-{os.environ['PITWALL_RUN']}-{os.environ['PITWALL_ATTEMPT']}".encode()


if __name__ == "__main__":
    main(sys.argv[1])
