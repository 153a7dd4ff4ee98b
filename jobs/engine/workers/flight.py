"""What torch's flight recorder holds in this process: its newest collectives, for a run that makes no progress.

It records where TORCH_FR_BUFFER_SIZE is set in the environment of the workers (how many collectives are kept; formerly
TORCH_NCCL_TRACE_BUFFER_SIZE). Read by profiling.trace.readers.flight_recorder.
"""

import json
import os
import pickle
import time

SWITCHES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_MOST_FRAMES = 40


def dump() -> bytes:
    """Return the dump as JSON, with this process's rank and the moment; b"" where nothing is recorded.

    torch's own JSON leaves out the stacks of the calls, so its pickle is read, in the process that made it.
    """
    if not any(os.environ.get(name, "0").isdecimal() and int(os.environ.get(name, "0")) for name in SWITCHES):
        return b""
    import torch.distributed
    from torch._C import _distributed_c10d

    read = getattr(_distributed_c10d, "_dump_fr_trace", None)  # torch 2.5 has it; builds without collectives have not
    if read is None or not torch.distributed.is_initialized():
        return b""
    recording = pickle.loads(read())  # noqa: S301 (made here and now)
    for entry in recording.get("entries", ()):
        entry["frames"] = entry.get("frames", [])[:_MOST_FRAMES]
    about = {"rank": torch.distributed.get_rank(), "dumped_at_ns": time.time_ns()}
    return json.dumps({**recording, **about}, default=str).encode()
