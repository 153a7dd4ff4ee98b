"""Calibration on real runs of this machine: `python -m tests.bench.calibration`.

The bundled model is trained by GRPO in five settings through the console, on the CPU; the planner is calibrated
on them with `manage.py calibrate`, and then a run of a sixth setting is held against its plan: as the planner would
have it without, and with what it took over. The exit code is 1 if that does not lie closer. About four minutes on two
quiet cores; a machine that does other things meanwhile shows in the errors.
"""

import json
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

from console.command_line.api_client import ENDED, ApiClient
from console.command_line.api_json import PlannedRowJson
from jobs.planner.calibration import miss_text
from jobs.planner.time.steps import PACES
from tests.journeys.conftest import Stack, start_stack, stop_stack, wait_for_line
from tests.journeys.other_trainers import token_of

SETTINGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"rollout.prompts_per_step": 8},
    {"rollout.samples_per_prompt": 4, "rollout.max_new_tokens": 24},
    {"rollout.prompts_per_step": 32, "train.micro_batch_size": 16},
    {"rollout.prompts_per_step": 12, "rollout.samples_per_prompt": 16},
)
UNSEEN: Mapping[str, Any] = {"rollout.prompts_per_step": 24}
ALWAYS = {"train.num_steps": 8, "eval.num_prompts": 0}
RUN_SECONDS = 300.0


def main() -> None:
    """Run, calibrate, run, and print."""
    stack = start_stack()
    try:
        wait_for_line(stack, "Ray is ready", seconds=90)
        token = token_of(stack)
        client = ApiClient(stack.url, token)
        for number, knobs in enumerate(SETTINGS):
            finish(client, knobs, key=f"setting {number}")
        token_file = stack.data_dir / "calibration.token"
        token_file.write_text(token)
        print(calibrate(stack, "--token-file", str(token_file)))
        taken = json.loads(calibrate(stack, "--token-file", str(token_file), "--take", "cpu", "--json"))
        run_id = finish(client, UNSEEN, key="unseen")
        rows = client.run_plan(run_id)["rows"]
        client.close()
    finally:
        stop_stack(stack)
    paces = {each["constant"]: each["present"] for kind in taken["kinds"] for each in kind["proposals"]}
    if not report(rows, paces):
        sys.exit("The plan of a run that was not among them does not lie closer.")


def finish(client: ApiClient, knobs: Mapping[str, Any], *, key: str) -> str:
    """Launch a run and wait until it has finished; return its id."""
    spec = {"algorithm": "grpo", "hardware": {"layout": "split", "device": "cpu"}, "knobs": {**ALWAYS, **knobs}}
    launched = client.launch(spec, key=key)
    deadline = time.monotonic() + RUN_SECONDS
    while (header := client.run(launched.id))["state"] not in ENDED:
        if time.monotonic() > deadline:
            sys.exit(f"{key} did not end within {RUN_SECONDS:.0f} s.")
        time.sleep(0.5)
    if header["state"] != "finished":
        sys.exit(f"{key}: {header['state']}: {header['cause'].get('text', '')}")
    print(f"{key}: {dict(knobs) or 'as the demo is'}", flush=True)
    return launched.id


def calibrate(stack: Stack, *arguments: str) -> str:
    """Return what the command prints."""
    return stack.manage("calibrate", "--url", stack.url, *arguments)


def report(rows: list[PlannedRowJson], paces: Mapping[str, float]) -> bool:
    """Print the phases of the unseen run; return whether the plan of most seconds lies closer."""
    print(f"\n{'an unseen run':<16}{'measured':>10}{'without':>10}{'with':>10}")
    without = with_ = 0.0
    found = []
    for row in rows:
        if row["quantity"] != "seconds" or row["phase"] not in PACES or not row["predicted"] or not row["measured"]:
            continue
        planned = row["predicted"]["middle"]
        shipped = planned / paces[PACES[row["phase"]]]
        without, with_ = without + shipped, with_ + planned
        found.append(row["measured"])
        print(f"{row['phase']:<16}{row['measured']:>8.3f} s{shipped:>8.3f} s{planned:>8.3f} s")
    measured = sum(found)
    print(f"{'together':<16}{measured:>8.3f} s{without:>8.3f} s{with_:>8.3f} s")
    if not found:
        return False
    far = [math.expm1(abs(math.log(measured / planned))) for planned in (without, with_)]
    print(f"missed by {miss_text(far[0])} without, {miss_text(far[1])} with")
    return far[1] < far[0]


if __name__ == "__main__":
    main()
