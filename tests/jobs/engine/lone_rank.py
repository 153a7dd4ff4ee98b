"""The program of test_peaks for one policy rank without Ray: RUN_DIR holds `cases.json`, argument NAME chooses of it;
what the rank held before its model and at most in each phase is added to `found.json`.

In the layouts shared and colocated the rank scores as the reference, holds the critic, and draws, too.
"""

import json
import socket
import sys
from dataclasses import asdict
from pathlib import Path

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import parse_spec
from jobs.engine.algorithm import Counts
from jobs.engine.device import load_device
from jobs.engine.roles.policy import Policy
from profiling import profile
from tests.jobs.engine.peaks import NUM_STEPS, PeakMeasurement, batches_of, requests_of


def main() -> None:
    """Measure one case."""
    run_dir, name = Path(sys.argv[1]), sys.argv[2]
    spec = parse_spec(json.loads((run_dir / "cases.json").read_text())[name])
    profile.configure("memory", device=load_device("cpu"))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    policy = Policy(spec=spec, rank=0, world_size=1, host="127.0.0.1", port=port, device="cpu")
    (batch,), whole = batches_of(spec)
    counts = [Counts.of(whole)]
    layout = spec.hardware.layout
    for step in range(1, NUM_STEPS + 1):
        if layout == "colocated":
            with profile.mark("rollout", step=step):
                policy.generate(requests_of(spec))
        if layout != "split":
            with profile.mark("reference", step=step):
                policy.reference_logprobs(batch)
        if policy.critic is not None or is_in(spec.algorithm, "labeled"):
            with profile.mark("old_logprobs", step=step):
                if policy.critic is not None:
                    policy.critic.values(batch)
                policy.logprobs(batch)
        with profile.mark("update", step=step):
            policy.update([batch], counts, 1e-4)
            if policy.critic is not None:
                policy.critic.update([batch], counts, 1e-4)
    peaks: dict[str, int] = {}
    for span in profile.drain():
        if span.memory is not None and not span.name:
            peaks[span.phase] = max(peaks.get(span.phase, 0), span.memory.resident_peak)
    readings = dict(policy.readings())
    measured = PeakMeasurement(baseline=int(readings["memory_baseline_bytes"]), peaks=peaks, readings=readings)
    file = run_dir / "found.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(found | {name: {"policy": asdict(measured)}}))
    policy.close()


if __name__ == "__main__":
    main()
