"""`make proof-trainers`: other people's trainers train the bundled model on CPU, each in its own environment.

They are launched through the console and watched live; what was measured becomes docs/proofs/trainers.md, with what no
machine without a GPU can run. Arguments: names of runs ("openrlhf dpo" "verl sft"); nothing for all. Results of earlier
calls stay in build/proofs/.
"""

import json
import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from console.command_line.api_client import ApiClient
from jobs.catalog.algorithm import is_in
from jobs.catalog.metric import metric
from tests.journeys.conftest import ROOT, Stack, start_stack, stop_stack, wait_for_line
from tests.journeys.environments import make_environment
from tests.journeys.other_trainers import RUNS, files_of, points, record_once_it_trains, run_folder, token_of, watch
from tests.proofs.checkpoint_models import make_models
from tests.proofs.needs_gpu import needs_gpu_lines

REPORT = ROOT / "docs" / "proofs" / "trainers.md"
RESULTS = ROOT / "build" / "proofs" / "trainers.json"
SAVED_EVERY = 7  # steps, or so that the last one is saved: OpenRLHF saves only every so many, and takes 28
RUN_SECONDS = 900  # under a minute alone; other work stands beside it
JUDGED_BY: Mapping[str, str] = {
    "openrlhf sft": "loss/sft",
    "openrlhf dpo": "loss/pairs",
    "openrlhf rm": "loss/pairs",
    "verl sft": "loss/sft",
    "trl sft": "loss/sft",
    "trl dpo": "loss/pairs",
    "trl kto": "loss/labels",
    "trl rm": "loss/pairs",
    "trl grpo": "reward/mean",
    "trl rloo": "reward/mean",
}
"""The metric that has to fall; of reinforcement learning, for which a dozen rollouts are too few to promise a rise, one
that has to be there, as a finite number, for every step."""


def run(client: ApiClient, stack: Stack, token: str, name: str) -> dict[str, Any]:
    """Launch one run, follow it to its end, and return what was seen of it."""
    spec = {**RUNS[name], "knobs": {**RUNS[name]["knobs"], "checkpoint.every_steps": SAVED_EVERY}}
    launched = client.launch(spec, key=f"proof {name}")
    own = RUNS[name].get("profile", {"first_step": 0, "num_steps": 1})
    asked = record_once_it_trains(client, launched.id, after_step=own["first_step"] + own["num_steps"] - 1)
    seen = watch(client, launched.id, seconds=RUN_SECONDS)
    client.follow_capture(launched.id, asked, tell=lambda _: None)
    captures = client.captures(launched.id)
    told = client.metric_names(launched.id)
    curve = points(client, launched.id, JUDGED_BY[name]) if JUDGED_BY[name] in told else []
    folder = run_folder(stack, launched.id)
    written = folder / "launch.json"
    launch = json.loads(written.read_text()) if written.exists() else {}
    left = files_of(stack, token, launched.id)
    if seen.header["state"] != "finished":
        print((folder / "log" / "driver-0.stderr").read_text(errors="replace")[-6000:], file=sys.stderr)
    return {
        "state": seen.header["state"],
        "cause": seen.header["cause"].get("text", ""),
        "seconds": round(seen.seconds, 1),
        "steps": seen.header["step"],
        "looks": len(seen.steps_while_running),
        "points": len({step for step, value in curve if math.isfinite(value)}),
        "first": curve[0][1] if curve else None,
        "last": curve[-1][1] if curve else None,
        "metrics": [name for name in told if metric(name).label != name],
        "own": [name for name in told if metric(name).label == name],
        "model": "model-final.zip" in left and left["model-final.zip"]["download_url"] is not None,
        "merged": make_models(client, stack, token, launched.id),
        "asked": len(captures),
        "recorded": [
            f"{file['tool_version']}, {file['size'] / 1e6:.1f} MB"
            for c in captures
            if c["state"] == "ready"
            for file in c["files"]
        ],
        "argv": [str(word).replace(str(folder), "RUN_DIR") for word in launch.get("argv", [])],
        "env": {key: str(value).replace(str(folder), "RUN_DIR") for key, value in launch.get("env", {}).items()},
    }


def is_good(name: str, found: Mapping[str, Any]) -> bool:
    """Return whether the run did all that is promised of it."""
    is_recorded = len(found.get("recorded", ())) == found.get("asked") == 1 + ("profile" in RUNS[name])
    if is_in(RUNS[name]["algorithm"], "rl"):
        is_as_told = found["steps"] > 0 and found["points"] == found["steps"]
    else:
        is_as_told = found["first"] is not None and found["last"] < found["first"]
    merged = found.get("merged", {})
    has_models = bool(merged.get("checkpoints")) and merged["says_the_same"] is not False and not merged["problem"]
    return (
        has_models
        and found["state"] == "finished"
        and is_as_told
        and found["looks"] >= 3
        and found["model"]
        and is_recorded
    )


def merged_text(merged: Mapping[str, Any]) -> str:
    """Return what came of the models of a run's checkpoints, as a sentence."""
    if not merged:
        return "not asked for."
    said = {None: "the last is the run's own", True: "the last draws the same tokens as the run's own"}
    same = said.get(merged["says_the_same"], "the last draws OTHER tokens than the run's own")
    return f"{merged['models']} of {merged['checkpoints']}; {merged['problem'] or f'{same}.'}"


def report(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    lines = [
        "# Other trainers, run for real",
        "",
        "Written by `make proof-trainers`: the bundled model (657,024 parameters) and the bundled word problems on two",
        "CPU cores, through the console. *Seen while running* counts the steps that the API told before the run had",
        "ended. Every run has to finish, and its model has to be among the run's files. In fine-tuning the loss has to",
        "fall; of reinforcement learning, too short here to promise a rise, the reward has to be there for every step,",
        "as a finite number. Each is recorded for 3 s by our recorder in its process, verl's steps 3 and 4 also by its",
        "own profiler: these files have to be here. Of every checkpoint that it saved a model is made on request, and",
        "that of the last one has to draw the same tokens as the model that the run has left.",
        "",
        "| run | state | seconds | steps | seen while running | judged by | first | last | model | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        numbers = [f"{found[key]:.4g}" if found[key] is not None else "—" for key in ("first", "last")]
        cells = [RUNS[name]["name"], found["state"], found["seconds"], found["steps"], found["looks"]]
        cells += [f"`{JUDGED_BY[name]}`", *numbers, "yes" if found["model"] else "no"]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} | {'holds' if is_good(name, found) else 'BROKEN'} |")
    lines += ["", *needs_gpu_lines(RUNS)]
    for name, found in results.items():
        python, *words = found["argv"] or [""]
        known = ", ".join(f"`{metric}`" for metric in found["metrics"])
        own = ", ".join(f"`{metric}`" for metric in found["own"]) or "none"
        env = " ".join(f"{key}={shlex.quote(value)}" for key, value in found["env"].items())
        lines += [
            "",
            f"## {RUNS[name]['name']}",
            "",
            f"Metrics of the dictionary: {known}. Under its own names: {own}.",
            "",
            f"Recorded while it trained: {'; '.join(found.get('recorded', ())) or 'nothing'}.",
            "",
            f"Models of its checkpoints: {merged_text(found.get('merged', {}))}",
            "",
        ]
        lines += [*([found["cause"], ""] if found["cause"] else []), "```sh"]
        lines += [env, f"python {shlex.join(words)}".rstrip() if python else "not started", "```"]
    return "\n".join(lines) + "\n"


def main(chosen: Sequence[str]) -> int:
    """Run what is asked for and write the report; exit code 1 if anything does not hold."""
    names = list(chosen) or list(RUNS)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for trainer in sorted({name.split()[0] for name in names}):
        begin = time.monotonic()
        print(f"{make_environment(trainer)}: {time.monotonic() - begin:.1f} s", flush=True)
    stack = start_stack()
    try:
        wait_for_line(stack, "Ray is ready", seconds=300)
        token = token_of(stack)
        client = ApiClient(stack.url, token)
        for name in names:
            results[name] = run(client, stack, token, name)
            print(f"{name}: {'holds' if is_good(name, results[name]) else 'BROKEN'} {results[name]}", flush=True)
        client.close()
    finally:
        stop_stack(stack)
    results = {name: results[name] for name in RUNS if name in results}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1))
    REPORT.write_text(report(results))
    print(*needs_gpu_lines(RUNS), sep="\n", flush=True)
    return 0 if all(is_good(name, found) for name, found in results.items()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
