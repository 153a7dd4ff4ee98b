"""The program of test_flights: one of two ranks, of which rank 0 alone calls a third collective. Arguments: RANK DIR.

It writes what its flight recorder holds, as a pickle and as JSON, and waits for the end of its input.
"""

import datetime
import json
import os
import sys
import threading
from pathlib import Path

os.environ["TORCH_FR_BUFFER_SIZE"] = "100"
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d


def evaluate() -> None:
    """Call what the other rank does not."""
    dist.all_reduce(torch.ones(7))


def main() -> None:
    """Call two collectives together, and perhaps a third, and tell of them."""
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    week = datetime.timedelta(days=7)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=week)
    dist.all_reduce(torch.ones(1024, dtype=torch.bfloat16))
    dist.barrier()
    if rank == 0:
        threading.Thread(target=evaluate, daemon=True).start()
    while len(json.loads(c10d._dump_fr_trace_json())["entries"]) < (3 if rank == 0 else 2):
        pass
    (folder / f"dump_{rank}").write_bytes(c10d._dump_fr_trace())
    (folder / f"rank{rank}.fr.json").write_bytes(c10d._dump_fr_trace_json())
    print("dumped", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
