"""The program of test_merge: one rank without Ray learns, saves and exports, once for each of CASES. RUN_DIR."""

import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import to_json
from jobs.engine.algorithm import Counts
from jobs.engine.batch import make_batch
from jobs.engine.checkpoints.checkpoint import Checkpoints, LoopState
from jobs.engine.checkpoints.export import export_model
from jobs.engine.roles import policy as policy_module
from jobs.engine.roles.policy import Policy
from jobs.engine.workers.worker_group import WorkerGroup
from tests.jobs.engine.lone_run import LoneGroup

FILE_BYTES = 1 << 20
"""Of weights in one file here, so that there are several."""
_OF_FOUR: dict[str, Any] = {"memory.zero_stage": "2", "lora.rank": 4, "quantization.load_in_4bit": True}
FOUR_BITS: dict[str, dict[str, Any]] = {
    "4 bits": {"memory.precision": "bfloat16"} | _OF_FOUR,
    "4 bits, scales in 8": {"memory.precision": "float32", "quantization.double_quantization": True} | _OF_FOUR,
}
CASES: dict[str, dict[str, Any]] = {
    "float32": {"memory.precision": "float32", "memory.zero_stage": "0"},
    "bfloat16": {"memory.precision": "bfloat16", "memory.zero_stage": "2"},
    "adapters": {"memory.precision": "float32", "memory.zero_stage": "3", "lora.rank": 4},
    **(FOUR_BITS if find_spec("bitsandbytes") else {}),
    "dora": {"memory.precision": "bfloat16", "lora.rank": 4, "lora.dora": True, "lora.rslora": True},
}


def main() -> None:
    """Leave `<case>/checkpoints/step-7` and `<case>/model/final`."""
    policy_module.EXPORT_BYTES = FILE_BYTES
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    draws = torch.Generator().manual_seed(0)
    rows = [([int(t) for t in torch.randint(3, 200, (24,), generator=draws)], [False] * 8 + [True] * 16)] * 4
    batch = make_batch(rows, pad_id=0)
    for case, knobs in CASES.items():
        spec = parse_spec(
            {"algorithm": "sft", "hardware": {"policy_ranks": 1}, "knobs": {"train.batch_size": 4} | knobs}
        )
        policy = Policy(spec=spec, rank=0, world_size=1, host="127.0.0.1", port=port, device="cpu")
        policy.update([batch, batch], [Counts.of(batch)] * 2, 1e-3)
        workers, folder = cast(WorkerGroup, LoneGroup(policy)), Path(sys.argv[1]) / case
        state = LoopState(step=7, num_consumed=8)
        Checkpoints(folder / "checkpoints", keep=1).save(workers, state, about={"spec": to_json(spec)})
        precision = str(spec.knob("memory.precision"))
        export_model(workers, folder / "model" / "final", precision=precision, about={"step": 7})


if __name__ == "__main__":
    main()
