"""A gloo process group beside torch's default one, for policy rank 0 and the rollout workers."""

from datetime import timedelta

import torch.distributed as dist


def join_group(*, host: str, port: int, rank: int, world_size: int, timeout: timedelta) -> dist.ProcessGroupGloo:
    """Return the group once all `world_size` processes have joined; rank 0 listens on `host:port`.

    It is not registered with torch.distributed, so that it can live in a process that has a default group (DeepSpeed's,
    vLLM's).
    """
    store = dist.TCPStore(host, port, world_size, is_master=rank == 0, timeout=timeout, wait_for_workers=False)
    return dist.ProcessGroupGloo(dist.PrefixStore("weight-transfer", store), rank, world_size, timeout)
