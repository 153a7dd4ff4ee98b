"""docs/proofs/faults.md, made of what was measured."""

from pathlib import Path
from typing import Any

from tests.proofs.faults.case import EVERY, MOMENTS, SEED, SETTLE_SECONDS, STEPS
from tests.proofs.faults.target import TARGETS

BESIDE = "beside"
HEAD = f"""# Reliability

What breaks, and what then: measured on one machine, with real parts. Written by `make proof-faults`; `ONLY=redis,web`
does some targets, a second call goes on where the first ended, and results gather in `build/proofs/faults.json`.
How it is built: [lifecycle.md](../develop/lifecycle.md), [runner.md](../develop/runner.md).

The runs are GRPO with {STEPS} steps and a checkpoint every {EVERY}, in the layout split; what hits a process of the run
or its disk comes in the layouts colocated and shared, too, at the end of the table. Each fault comes at a moment that
the seed decides (`{SEED}/<target>/<moment>`): *starting* (up to 3 s into it), *rollout* (of an early step),
*checkpoint* (while one is being written). Beside it another run trains, a browser's websocket stays open, the database
has a small disk of its own, and runners reach the console by a line that can be cut. A worker that died is named with
the phase of the call in which it was missed.

Each time this is checked: the run ends in the right state with its cause within {SETTLE_SECONDS:.0f} s, or goes on and
nothing is behind any more; every point that the trainer wrote (`events.jsonl`) is in the console once, with its value;
the websocket had every frame once; no process with the run's mark is left, and the console holds the proof; the other
run goes on, but where the cluster itself is lost.

"""


def write(results: dict[str, dict[str, Any]], page: Path) -> None:
    """Write the page."""
    rows, problems = [], []
    for target in TARGETS:
        for moment in MOMENTS:
            found = results.get(f"{target.name}/{moment}")
            first = target.text if moment == MOMENTS[0] else ""
            if found is None:
                rows.append(f"| {first} | {moment} | *not run yet* | | | | | |")
                continue
            rows.append(f"| {first} | {found['when'] or moment} | " + " | ".join(_cells(found)) + " |")
            problems += [f"- {target.name}, {moment}: {problem}" for problem in found["problems"]]
    num_done = sum(r["is_ok"] for name, r in results.items() if name != BESIDE)
    head = HEAD + f"{num_done} of {len(TARGETS) * len(MOMENTS)} cases hold."
    if beside := results.get(BESIDE, {}).get("points"):
        head += f" The other run, at its end: {beside['lost']} of {beside['points']} points lost, {beside['doubled']} "
        head += "doubled."
    head += "\n\n"
    table = [
        "| fault | when | the run | what the person reads | settled after | points lost, doubled | frames lost, "
        "doubled | processes left |",
        "|---|---|---|---|---|---|---|---|",
    ]
    tail = ["", "## What does not hold", "", *problems] if problems else []
    page.write_text(head + "\n".join([*table, *rows, *tail]) + "\n", encoding="utf-8")


def _cells(found: dict[str, Any]) -> list[str]:
    points, frames = found["points"], found["frames"]
    return [
        ("" if found["is_ok"] else "**") + (found["state"] or "?") + ("" if found["is_ok"] else "**"),
        (found["said"] or "–").replace("|", "\\|").replace("\n", " "),
        f"{found['settled']:.1f} s" if found["settled"] >= 0 else "–",
        f"{points['lost']}, {points['doubled']} of {points['points']}" if points else "–",
        f"{frames['lost']}, {frames['doubled']} of {frames['sent']}" if frames else "–",
        str(found["left"]) if found["left"] >= 0 else "–",
    ]
