"""`make proof-faults [ONLY=redis,web] [MOMENT=rollout] [AGAIN=1] [SECONDS=600]`: break things; write the page.

What has held before is not done again (AGAIN=1: all is); after SECONDS nothing new is begun. Needs root, for disks.
"""

import json
import os
import signal
import sys
import time
from typing import Any

from tests.proofs.faults import points
from tests.proofs.faults.case import ENDED, MOMENTS, as_dict, examine
from tests.proofs.faults.report import BESIDE, write
from tests.proofs.faults.stack import ROOT, Stack, running_stack, until
from tests.proofs.faults.target import BY_NAME, TARGETS, Target

RESULTS = ROOT / "build" / "proofs" / "faults.json"
PAGE = ROOT / "docs" / "proofs" / "faults.md"
# Mostly asleep, so that it takes no CPU from the run under test; four workers and three are seven of eight CPUs.
BYSTANDER: dict[str, Any] = {
    "name": "bystander",
    "hardware": {"policy_ranks": 1},
    "reward": {
        "kind": "custom",
        "file_name": "slow.py",
        "source": "import time\n\n\ndef reward(prompt, completion, answer):\n    time.sleep(1.0)\n    return 1.0\n",
    },
    "knobs": {
        "train.num_steps": 5000,
        "rollout.prompts_per_step": 2,
        "rollout.samples_per_prompt": 2,
        "algorithm.kl_coefficient": 0.0,
        "eval.num_prompts": 0,
        "checkpoint.every_steps": 0,
    },
}


def main() -> int:
    """Run the cases that are asked for; return 1 if one does not hold."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wanted = [name for name in os.environ.get("ONLY", "").split(",") if name] or [t.name for t in TARGETS]
    unknown = [name for name in wanted if name not in BY_NAME]
    if unknown:
        print(f"There is no target {', '.join(unknown)}. Use some of {', '.join(BY_NAME)}.", file=sys.stderr)
        return 2
    moments = [m for m in os.environ.get("MOMENT", "").split(",") if m] or list(MOMENTS)
    is_again = os.environ.get("AGAIN", "") not in ("", "0")
    cases = {
        name: [m for m in moments if is_again or not results.get(f"{name}/{m}", {}).get("is_ok")] for name in wanted
    }
    until_when = time.monotonic() + float(os.environ.get("SECONDS") or "inf")
    if any(cases.values()):
        with running_stack() as stack:
            bystander = ""
            runs = [
                (name, together) for name, missing in cases.items() for together in _together(BY_NAME[name], missing)
            ]
            for name, together in runs:
                if time.monotonic() < until_when:
                    bystander = _bystander(stack, bystander)
                    began = time.monotonic()
                    for found in map(as_dict, examine(stack, BY_NAME[name], together, bystander=bystander)):
                        results[f"{name}/{found['moment']}"] = found
                        print(f"{time.monotonic() - began:.0f} s {json.dumps(found)}", flush=True)
                    RESULTS.parent.mkdir(parents=True, exist_ok=True)
                    RESULTS.write_text(json.dumps(results, indent=1))
            results[BESIDE] = _end_bystander(stack, bystander) or results.get(BESIDE, {"is_ok": True})
            RESULTS.write_text(json.dumps(results, indent=1))
    write(results, PAGE)
    bad = [name for name, found in results.items() if not found["is_ok"]]
    print(f"{len(results) - len(bad)} hold, {len(bad)} do not{': ' + ', '.join(bad) if bad else ''}.")
    return 1 if bad else 0


def _together(target: Target, moments: list[str]) -> list[list[str]]:
    """Return which moments one run can take."""
    return [[m] for m in moments] if target.needs_runs_of_its_own else [moments] * bool(moments)


def _bystander(stack: Stack, run: str) -> str:
    """Return the run that trains beside, another one if it has ended."""
    if run and stack.header(run).get("state") not in ENDED:
        return run
    fresh = stack.launch(BYSTANDER)
    until(lambda: stack.header(fresh).get("step", 0) >= 1, seconds=240, what="the bystander trained")
    return fresh


def _end_bystander(stack: Stack, run: str) -> dict[str, Any]:
    """Stop the other run and hold it, too, against what its trainer wrote; {} if there is none."""
    if not run or stack.header(run).get("state") in ENDED:
        return {}
    stack.http.post(f"/api/runs/{run}/stop").raise_for_status()
    until(lambda: stack.header(run).get("state") in ENDED, seconds=240, what="the bystander stopped")
    found = points.compare(stack.http, run, stack.runs / run / "a1")
    is_ok = found["points"] > 0 and not any(value for name, value in found.items() if name != "points")
    return {"is_ok": is_ok, "state": stack.header(run)["state"], "points": found}


if __name__ == "__main__":
    sys.exit(main())
