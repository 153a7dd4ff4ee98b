"""The roles of verl's processes, what its own profiler writes, and what the file names say.

Sources: verl 0.9.1 utils/profiler/torch_profile.py (build_trace_basename), config.py (relocate_rollout_traces),
nvtx_profile.py (relocate_results), torch_memory_profile.py and utils/memory_utils.py.

actor-rollout-ref_train_step3_rank1-of-4_pid77_20260101120000000.json.gz            torch: worker, scope, step, rank
actor-rollout-ref_ref-compute-log-prob_step3_rank1-of-4_tp0-dp1_pid77_2026.json.gz  torch: a stage of it
agent_loop_rollout_replica_0/..., rollout-replica0-globalrank1_...                  torch: a rollout engine's own
step3/torch_memory_rank1_pid77.pickle                                               torch_memory
value_model_host7_worker_process_77.1.nsys-rep                                      nsys
"""

import re
from collections.abc import Sequence
from pathlib import Path

from jobs.adapters.captures import CaptureFile, files_below
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec

FOLDER = "profile"
ENDINGS = (".json.gz", ".json", ".pickle", ".nsys-rep", ".db")
_ACTORS = ("Worker", "WorkerDict")  # of single_controller/ray: what trains, alone or several roles in one
_WORKERS = (("value-model", "critic"), ("critic", "critic"), ("ref-", "reference"), ("reward", "reward"))
_REFERENCE_STAGE = re.compile(r"[^_]+_ref-")
_REPLICA = re.compile(r"rollout[_-]replica[_-]?(\d+)")
_GLOBAL_RANK = re.compile(r"globalrank(\d+)")
_RANK = re.compile(r"(?:^|[_.-])rank[_-]?(\d+)")
_STEP = re.compile(r"(?:^|[/_])steps?(\d+)")


class VerlCaptures:
    """Files below the folder that verl is given; roles that share their processes are the policy's."""

    def role_of(self, *, spec: RunSpec, actor: str) -> str:
        """See Captures."""
        if not actor:
            return "vllm" if is_in(spec.algorithm, "rl") else "policy"
        return "critic" if "Critic" in actor else "policy" if actor.endswith(_ACTORS) else "vllm"

    def files(self, *, run_dir: Path) -> Sequence[CaptureFile]:
        """See Captures."""
        folder = run_dir / FOLDER
        return [
            _capture_file(path, size, str(path.relative_to(folder)))
            for path, size in files_below(folder)
            if path.name.endswith(ENDINGS) and not path.name.startswith(".")
        ]


def _capture_file(path: Path, size: int, name: str) -> CaptureFile:
    if replica := _REPLICA.search(name):
        rank = _GLOBAL_RANK.search(name) or replica
        return CaptureFile(path=path, size=size, role="vllm", rank=int(rank[1]), step=_number(_STEP, name))
    return CaptureFile(path=path, size=size, role=_role(name), rank=_number(_RANK, name), step=_number(_STEP, name))


def _role(name: str) -> str:
    """Return the role of the worker, which stands first; a stage of the reference may run in the policy's worker."""
    last = name.rpartition("/")[2]
    if _REFERENCE_STAGE.match(last):
        return "reference"
    plain = last.replace("_", "-")
    return next((role for begin, role in _WORKERS if plain.startswith(begin)), "policy")


def _number(pattern: re.Pattern[str], name: str) -> int:
    match = pattern.search(name)
    return int(match[1]) if match and len(match[1]) < 9 else 0
