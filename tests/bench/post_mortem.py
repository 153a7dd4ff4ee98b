"""A rank of the built-in trainer under a limit of memory: `python -m tests.bench.post_mortem`.

The bundled model is trained on the CPU in one process whose data may grow by 0.7 of what the plan says (RLIMIT_DATA).
It dies; what it says is held against its plan; and the same process with the change that is proposed has to finish
under the same limit. The exit code is 1 if it named another phase, or the change does not fit. Half a minute.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from jobs.catalog.rules.rule import changed
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.planner.constant import shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.memory.cpu import host_fleet
from jobs.planner.read.context import Models, Workload
from jobs.planner.read.spec import read_job
from jobs.planner.shapes.known import shape_of

SPEC = {
    "algorithm": "grpo",
    "hardware": {"layout": "split", "device": "cpu", "policy_ranks": 1},
    "knobs": {"train.micro_batch_size": 128, "memory.zero_stage": "0"},
}
"""Without ZeRO: its bucket of 2 GB is hardly touched, but RLIMIT_DATA counts all of it."""
ALLOWED = 0.7  # of the plan: RLIMIT_DATA also counts stacks of threads, and what malloc keeps


def main() -> None:
    """Let it die, ask, and run it again."""
    if len(sys.argv) > 1:
        train(parse_spec(json.loads(sys.argv[1])), int(sys.argv[2]))
        return
    import django

    django.setup()
    from jobs.planning.memory_failure import memory_failure
    from jobs.planning.plan_vs_measured import RunMeasurements
    from jobs.planning.post_mortem import examine
    from jobs.planning.question import PlannerQuestion

    spec = parse_spec(SPEC)
    models, fleet = Models(policy=shape_of(spec.model.id)), host_fleet(spec.num_workers, 16 << 30)
    job = read_job(spec, models, fleet)
    made = estimate(job)
    held = {
        each.phase: each.by_role["policy"].total
        for pool in made.pools
        for each in pool.phases
        if "policy" in each.by_role
    }
    room = round(max(held.values()) * ALLOWED)
    died = child(spec, room)
    print(f"planned {max(held.values()) / 1e6:,.0f} MB, allowed {room / 1e6:,.0f} MB: {died}")
    cause = {"role": "policy", "rank": 0, "phase": died["phase"], "text": "", "log_line": died["text"]}
    failure = memory_failure(cause)
    if failure is None:
        sys.exit("What it said is not taken for memory.")
    question = PlannerQuestion(
        spec=spec,
        models=models,
        fleet=fleet,
        workload=Workload(),
        constants=shipped_constants(),
        job=job,
        notes=(),
    )
    found = examine(failure, question, RunMeasurements())
    print(f"named: {found.role} in {found.phase}, {found.term} by {found.known_by}")
    if found.remedy is None:
        sys.exit("No change was found.")
    print(f"change: {dict(found.remedy.changes)}, planned {found.remedy.needed / 1e6:,.0f} MB")
    again = child(changed(spec, found.remedy.changes), room)
    print(f"with it: {again['text'] or 'it finished'}")
    if (found.phase, again["text"]) != ("update", ""):
        sys.exit(1)


def child(spec: RunSpec, room: int) -> dict[str, Any]:
    """Train in a process of its own; return what it said at its end and in which phase, \"\" where it finished."""
    command = [sys.executable, "-m", "tests.bench.post_mortem", spec.model_dump_json(), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if not done.stdout.strip():
        sys.exit(f"It said nothing: {done.stderr[-2000:]}")
    said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


def train(spec: RunSpec, room: int) -> None:
    """Make two steps of a policy whose process may grow by `room` bytes after its model was loaded, and say how it
    went."""
    from jobs.engine.device import load_device
    from jobs.engine.roles.policy import Policy
    from profiling import profile
    from tests.jobs.engine.lone_rank import _counts, _place
    from tests.jobs.engine.peaks import batches_of

    profile.configure("memory", device=load_device("cpu"))  # freed memory goes back, as in a run
    (batch,), _whole = batches_of(spec)
    policy = Policy(spec=spec, **_place())
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + room, resource.RLIM_INFINITY))
    text = ""
    try:
        for _step in range(2):
            policy.update([batch], _counts(batch), 1e-4)
    except (MemoryError, RuntimeError) as error:
        text = str(error)
    print(json.dumps({"phase": "update" if text else "", "text": text[:500]}), flush=True)


def data_bytes() -> int:
    """Return the bytes that count for RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/status says nothing of VmData")


if __name__ == "__main__":
    main()
