"""The program of test_peaks for one process without Ray: RUN_DIR holds `cases.json`, argument NAME chooses of it, and
ROLE says whose rank it is; what it held before its model and at most in each phase is added to `found.json`.

The policy's rank scores as the reference or the teacher, holds the critic, and draws, as far as its layout has it so.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.role import ROLES
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts
from jobs.engine.batch import Batch
from jobs.engine.device import load_device
from jobs.engine.roles.critic import Critic
from jobs.engine.roles.policy import Policy
from jobs.engine.roles.reference import Reference
from jobs.engine.roles.teacher import Teacher
from profiling import profile
from tests.jobs.engine.peaks import NUM_STEPS, PeakMeasurement, batches_of, requests_of


def measure(run_dir: Path, name: str, spec: RunSpec) -> None:
    """Measure each role of a case that scores or learns in a process of its own, which starts cold."""
    for role in roles_apart(spec):
        command = [sys.executable, "-m", "tests.jobs.engine.lone_rank", str(run_dir), name, role]
        subprocess.run(command, check=True, capture_output=True, timeout=1200)


def roles_apart(spec: RunSpec) -> list[str]:
    """Return the roles of a run that have processes of their own, but for rollout engines."""
    wanted = (role for role in ROLES.values() if spec.needs(role.id) and role.worker and not role.generates)
    return [role.id for role in wanted if role.num_workers(spec)]


def main() -> None:
    """Measure one role of one case."""
    run_dir, name, role = Path(sys.argv[1]), *sys.argv[2:]
    spec = parse_spec(json.loads((run_dir / "cases.json").read_text())[name])
    if not spec.knob("quantization.load_in_4bit"):
        # PEFT imports it where it is (58 MiB). The packages of a CPU node have none; those of the tests do.
        sys.modules["bitsandbytes"] = None  # type: ignore[assignment]
    profile.configure("memory", device=load_device("cpu"))
    (batch,), _ = batches_of(spec)
    alone = {"policy": _policy, "critic": _critic, "reference": _reference, "teacher": _teacher}[role](spec, batch)
    readings: dict[str, float] = next(alone)
    peaks: dict[str, int] = {}
    for span in profile.drain():
        if span.memory is not None and not span.name:
            peaks[span.phase] = max(peaks.get(span.phase, 0), span.memory.resident_peak)
    measured = PeakMeasurement(baseline=int(readings["memory_baseline_bytes"]), peaks=peaks, readings=readings)
    file = run_dir / "found.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    found.setdefault(name, {})[role] = asdict(measured)
    file.write_text(json.dumps(found))
    next(alone, None)


def _place() -> dict[str, Any]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    return {"rank": 0, "world_size": 1, "host": "127.0.0.1", "port": port, "device": "cpu"}


def _policy(spec: RunSpec, batch: Batch) -> Iterator[dict[str, float]]:
    policy, counts = Policy(spec=spec, **_place()), _counts(batch)
    for step in range(1, NUM_STEPS + 1):
        if spec.needs("vllm") and not ROLES["vllm"].num_workers(spec):
            with _phase("rollout", step):
                policy.generate(requests_of(spec))
        if spec.needs("reference") and not ROLES["reference"].num_workers(spec):
            with _phase("reference", step):
                policy.reference_logprobs(batch)
        if spec.needs("teacher") and not ROLES["teacher"].num_workers(spec):
            with _phase("reference", step):
                policy.teacher_scores(batch)
        if policy.critic is not None or is_in(spec.algorithm, "labeled"):
            with _phase("old_logprobs", step):
                if policy.critic is not None:
                    policy.critic.values(batch)
                policy.logprobs(batch)
        with _phase("update", step):
            policy.update([batch], counts, 1e-4)
            if policy.critic is not None:
                policy.critic.update([batch], counts, 1e-4)
    yield dict(policy.readings())
    policy.close()


def _critic(spec: RunSpec, batch: Batch) -> Iterator[dict[str, float]]:
    critic = Critic(spec=spec, **_place())
    for step in range(1, NUM_STEPS + 1):
        with _phase("old_logprobs", step):
            critic.values(batch)
        with _phase("update", step):
            critic.update([batch], _counts(batch), 1e-4)
    yield dict(critic.readings())
    critic.close()


def _reference(spec: RunSpec, batch: Batch) -> Iterator[dict[str, float]]:
    reference = Reference(spec=spec, device="cpu")
    for step in range(1, NUM_STEPS + 1):
        with _phase("reference", step):
            reference.logprobs(batch)
    yield dict(reference.readings())


def _teacher(spec: RunSpec, batch: Batch) -> Iterator[dict[str, float]]:
    teacher = Teacher(spec=spec, device="cpu")
    for step in range(1, NUM_STEPS + 1):
        with _phase("reference", step):
            teacher.scores(batch)
    yield dict(teacher.readings())


def _phase(name: str, step: int) -> AbstractContextManager[None]:
    return profile.mark(name, step=step)


def _counts(batch: Batch) -> list[Counts]:
    return [Counts.of(batch)]


if __name__ == "__main__":
    main()
