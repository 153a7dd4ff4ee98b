"""`make proof-resume`: every layout into every layout, and drivers killed at seeded moments; writes the report.

Arguments: any of `layouts`, `writes`, `kills`, `crossings`, `apart`; nothing for all. What one of them measured stays
in build/proofs/, for the report.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.engine.checkpoints.checkpoint import open_checkpoint
from tests.jobs.engine.conftest import EndedRun, Running
from tests.ray_head import HOUSE, RayHead, running_head

REPORT = HOUSE / "docs" / "proofs" / "resume.md"
RESULTS = HOUSE / "build" / "proofs"
ALLOWED = 1e-5
SEED = 20261120
SFT: dict[str, Any] = {
    "algorithm": "sft",
    "profile": {"nsys_ready": "off"},
    "knobs": {"train.num_steps": 12, "checkpoint.every_steps": 2, "eval.num_prompts": 0},
}
GRPO: dict[str, Any] = {
    "algorithm": "grpo",
    "profile": {"nsys_ready": "off"},
    "knobs": {"train.num_steps": 6, "checkpoint.every_steps": 2, "eval.every_steps": 3, "eval.num_prompts": 16},
}
KILLED = {"split": (2, 4.0), "shared": (2, 4.0), "colocated": (3, 1.5)}
"""Of each layout, how many drivers are killed, and how many seconds after checkpoint 2 at the latest."""
CROSSINGS = (("shared", "split"), ("split", "colocated"), ("colocated", "shared"))
CROSSED_STEP = 4  # has a checkpoint and no evaluation: who goes on from it up to this step evaluates it
SAMPLERS = {"split": "vLLM", "shared": "vLLM", "colocated": "the ranks"}
ENGINE = ("jobs.engine", "--device=cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a driver is killed: `reached` returns True once the time has come, `seconds` later comes the signal."""

    text: str
    seconds: float
    reached: Callable[[Running], bool]


def while_writing(step: int, seconds: float) -> Moment:
    """While the checkpoint of `step` is being written."""
    return Moment(
        text=f"SFT, {seconds * 1e3:.0f} ms into writing checkpoint {step}",
        seconds=seconds,
        reached=lambda running: (running.run_dir / "checkpoints" / f".step-{step}.draft").exists(),
    )


def after_checkpoint(step: int, seconds: float, *, layout: str) -> Moment:
    """Some time after the checkpoint of `step` was announced: in a rollout, an update, an evaluation, an export."""
    return Moment(
        text=f"GRPO {layout}, {seconds:.2f} s after checkpoint {step}",
        seconds=seconds,
        reached=lambda running: f"checkpoint-{step}" in announced(running.events()),
    )


def measure_writes(head: RayHead, folder: Path) -> list[dict[str, Any]]:
    """Kill drivers of SFT runs while they write a checkpoint."""
    draw = random.Random(SEED)
    return killed_at([while_writing(step, draw.uniform(0.0, 0.06)) for step in (4, 4, 6, 8)], SFT, head, folder)


def measure_kills(head: RayHead, folder: Path) -> list[dict[str, Any]]:
    """Kill drivers of GRPO runs in each layout at any time."""
    draw = random.Random(SEED + 1)
    found = []
    for layout, (count, latest) in KILLED.items():
        moments = [after_checkpoint(2, draw.uniform(0.0, latest), layout=layout) for _ in range(count)]
        found += killed_at(moments, in_layout(layout), head, folder)
    return found


def measure_crossings(head: RayHead, folder: Path) -> list[dict[str, Any]]:
    """Go on from a checkpoint of one layout in another one."""
    found = []
    for source, target in CROSSINGS:
        whole = whole_run(in_layout(source), head, folder)
        place, run = whole.run_dir / "checkpoints" / f"step-{CROSSED_STEP}", folder / f"{source}-{target}"
        resumed = going_on(run / "a2", in_layout(target), head, place, step=CROSSED_STEP)
        last = GRPO["knobs"]["train.num_steps"]
        later = range(CROSSED_STEP + 1, last + 1)
        crossing = {
            "source": source,
            "target": target,
            "num_prompts": sum(len(told(resumed, "prompt", s)) for s in later),
            "are_prompts_equal": all(told(resumed, "prompt", s) == told(whole, "prompt", s) for s in later),
            **compared(whole, resumed, CROSSED_STEP, last),
        }
        if SAMPLERS[source] != SAMPLERS[target]:  # what they have in common stands before the next rollout
            pair = [
                going_on(run / layout / "a2", in_layout(layout, num_steps=CROSSED_STEP), head, place, step=CROSSED_STEP)
                for layout in (source, target)
            ]
            crossing["restored"] = restored_alike(*pair)
        found.append(crossing)
        print(json.dumps(crossing), flush=True)
    return found


def restored_alike(one: EndedRun, other: EndedRun) -> dict[str, Any]:
    """Return what is equal of two attempts that went on from the same checkpoint, evaluated it and handed it over."""
    greedy = [told(ended, "completion", CROSSED_STEP, kind="eval") for ended in (one, other)]
    scores = [ended.series("eval/accuracy") for ended in (one, other)]
    assert all(CROSSED_STEP in score for score in scores)
    return {
        "is_model_equal": model_of(one) == model_of(other),
        "num_answers": len(greedy[0]),
        "num_equal_answers": sum(a == b for a, b in zip(*greedy, strict=True)),
        "are_scores_equal": scores[0] == scores[1],
    }


def in_layout(layout: str, *, num_steps: int | None = None) -> dict[str, Any]:
    """Return the spec of GRPO in a layout; `num_steps` replaces its own."""
    knobs = GRPO["knobs"] | ({"train.num_steps": num_steps} if num_steps else {})
    return GRPO | {"hardware": {"layout": layout}, "knobs": knobs}


def whole_run(spec: dict[str, Any], head: RayHead, folder: Path) -> EndedRun:
    """Return a run of the spec that nobody disturbs; it is made once."""
    run_dir = folder / f"{spec['algorithm']}-{spec.get('hardware', {}).get('layout', 'alone')}" / "a1"
    if run_dir.exists():
        return EndedRun.read(run_dir, code=0)
    ended = Running(run_dir, spec, head, ENGINE).wait()
    assert ended.code == 0, ended.output
    return ended


def going_on(run_dir: Path, spec: dict[str, Any], head: RayHead, place: Path, *, step: int) -> EndedRun:
    """Return the attempt that goes on from the checkpoint in `place`."""
    run_dir.mkdir(parents=True)
    (run_dir / "resume.json").write_text(json.dumps({"attempt": 1, "step": step, "folder": str(place)}))
    resumed = Running(run_dir, spec, head, ENGINE).wait()
    assert resumed.code == 0, resumed.output
    return resumed


def announced(events: list[dict[str, Any]]) -> dict[str, int]:
    """Return the checkpoints that were announced and not removed, by name with their step."""
    found = {}
    for event in events:
        if event["kind"] == "artifact" and event["artifact"] == "checkpoint":
            found[event["name"]] = event["step"]
            if event["meta"].get("removed"):
                del found[event["name"]]
    return found


def measure_layouts(head: RayHead, folder: Path) -> list[dict[str, Any]]:
    """Every layout saves, every layout goes on."""
    spec = {"algorithm": "sft", "knobs": {"train.batch_size": 32}}
    ended = Running(folder / "layouts", spec, head, ("tests.jobs.engine.resuming", "all")).wait(900)
    assert ended.code == 0, ended.output
    found: list[dict[str, Any]] = json.loads((ended.run_dir / "found.json").read_text())
    for saved in found:
        for resumed in saved["resumed"].values():
            resumed["difference"] = max(abs(a - b) for a, b in zip(resumed["losses"], saved["losses"][3:], strict=True))
    return found


def killed_at(moments: list[Moment], spec: dict[str, Any], head: RayHead, folder: Path) -> list[dict[str, Any]]:
    """Kill drivers, go on from the newest checkpoint that was announced, compare with a run that nobody disturbed."""
    whole = whole_run(spec, head, folder)
    found = []
    for number, moment in enumerate(moments, start=1):
        run = folder / f"{whole.run_dir.parent.name}-killed-{number}"
        running = Running(run / "a1", spec, head, ENGINE)
        try:
            while not moment.reached(running):
                assert running.process.poll() is None, running.output()
                time.sleep(0.0005)
            time.sleep(moment.seconds)
        finally:
            os.kill(running.process.pid, signal.SIGKILL)
        killed = running.wait()
        offered = announced(killed.events)
        for name in offered.values():
            open_checkpoint(run / "a1" / "checkpoints" / f"step-{name}", name=f"Checkpoint {name}").check()
        step = max(offered.values())
        resumed = going_on(run / "a2", spec, head, run / "a1" / "checkpoints" / f"step-{step}", step=step)
        found.append(
            {
                "moment": moment.text,
                "left": sorted(p.name for p in (run / "a1" / "checkpoints").iterdir()),
                "last_step": max(killed.series("time/step_seconds")),
                "resumed_from": step,
                **compared(whole, resumed, step, spec["knobs"]["train.num_steps"]),
            }
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def measure_apart(head: RayHead, folder: Path) -> dict[str, Any]:
    """Kill a run whose workers do not find the driver's directory, go on, compare with one that went through."""
    whole = Running(folder / "whole" / "a1", SFT, head, ENGINE).wait()
    seen, run = folder / "seen", folder / "apart"
    program = ("tests.proofs.apart", str(seen))
    running = Running(run / "a1", SFT | {"hardware": {"policy_ranks": 2}}, head, program)
    running.wait_for_step(4)
    os.kill(running.process.pid, signal.SIGKILL)
    step = max(announced(running.wait().events).values())
    outside = sorted(str(p.relative_to(seen)) for p in seen.rglob("*") if p.is_file())
    (run / "a2").mkdir()
    place = seen / "a1" / "checkpoints" / f"step-{step}"  # as the driver sees it
    (run / "a2" / "resume.json").write_text(json.dumps({"attempt": 1, "step": step, "folder": str(place)}))
    resumed = Running(run / "a2", SFT, head, program).wait()
    assert resumed.code == 0, resumed.output
    assert outside
    assert not [name for name in outside if "checkpoints" in name], outside
    parts = sorted(p.name for p in (run / "a1" / "checkpoints" / f"step-{step}").glob("policy/*.safetensors"))
    assert {name.split("-")[0] for name in parts} == {"0", "1"}
    return {"resumed_from": step, "parts": parts, **compared(whole, resumed, step, SFT["knobs"]["train.num_steps"])}


def compared(whole: EndedRun, resumed: EndedRun, step: int, last: int) -> dict[str, Any]:
    """Return what is equal and how far the losses are apart in the steps after `step`."""
    name = "loss/sft" if resumed.series("loss/sft") else "loss/policy"
    wanted = {s: v for s, v in whole.series(name).items() if s > step}
    losses = resumed.series(name)
    assert sorted(losses) == sorted(wanted) == list(range(step + 1, last + 1))
    return {
        "difference": max(
            (abs(losses[s] - wanted[s]) for s in wanted), default=0.0
        ),  # none left: it had died after the last
        "num_rewards": sum(len(rewards(resumed, s)) for s in wanted),
        "are_rewards_equal": all(rewards(resumed, s) == rewards(whole, s) for s in wanted),
        "is_model_equal": model_of(resumed) == model_of(whole),
        "gap": max(resumed.series("sync/max_logprob_diff").values(), default=None),
    }


def rewards(ended: EndedRun, step: int) -> list[float]:
    """Return the reward of every sample of a step; none in SFT."""
    return told(ended, "reward", step)


def told(ended: EndedRun, name: str, step: int, *, kind: str = "step") -> list[Any]:
    """Return a field of every sample of a step, or of its evaluation; none in SFT."""
    path = ended.run_dir / "samples" / f"{kind}-{step:06d}.jsonl"
    return [json.loads(line)[name] for line in path.read_text().splitlines()] if path.exists() else []


def model_of(ended: EndedRun) -> bytes:
    """Return the bytes of the final model."""
    return (ended.run_dir / "model" / "final" / "model.safetensors").read_bytes()


def report(
    layouts: list[dict[str, Any]],
    kills: list[dict[str, Any]],
    crossings: list[dict[str, Any]],
    apart: dict[str, Any],
) -> str:
    """Return the page."""
    full = [saved for saved in layouts if len(saved["resumed"]) > 1]
    single = [saved for saved in layouts if len(saved["resumed"]) == 1]
    names = list(full[0]["resumed"])
    largest = max(r["difference"] for saved in full for r in saved["resumed"].values())
    lines = [
        "# Resume, measured",
        "",
        "Written by `make proof-resume`. The demo's model (657,024 parameters) on CPU.",
        "",
        "## Every layout into every layout",
        "",
        "Six steps of SFT with a checkpoint after the third; three steps from it in another layout (ZeRO stage × "
        "ranks). Largest difference of a loss from the run that went on; 0: equal to the last bit. Allowed are "
        f"{ALLOWED:g}; the largest is {largest:.1e}.",
        "",
        "| saved by | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for saved in full:
        cells = [_small(saved["resumed"][name]["difference"]) for name in names]
        lines.append(f"| {saved['source']} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "The same layout in bfloat16, with the optimizer's states in bfloat16, too (half masters), or in host memory "
        "(host), and with rank 1 on a node that does not see the driver's folder (its state goes "
        "through the object store, 1 MiB at a time):",
        "",
        "| layout | difference | files | MiB | saved in | loaded in |",
        "|---|---|---|---|---|---|",
    ]
    for saved in single:
        ((_, resumed),) = saved["resumed"].items()
        lines.append(
            f"| {saved['source']} | {_small(resumed['difference'])} | {len(saved['files'])} | "
            f"{saved['bytes'] / (1 << 20):.1f} | {saved['seconds'] * 1e3:.0f} ms | {resumed['seconds'] * 1e3:.0f} ms |"
        )
    lines += [
        "",
        "## Drivers killed (`kill -9`)",
        "",
        f"Seeded moments ({SEED}); every checkpoint that had been announced was read and its checksums compared; then "
        "a second attempt went on from the newest, in the same layout.",
        "",
        "| moment | left in `checkpoints/` | resumed from | loss difference | rewards | final model | vLLM gap |",
        "|---|---|---|---|---|---|---|",
    ]
    for kill in kills:
        same = f"all {kill['num_rewards']} equal" if kill["are_rewards_equal"] else "**differ**"
        lines.append(
            f"| {kill['moment']} | {', '.join(kill['left'])} | {kill['resumed_from']} | {_small(kill['difference'])} | "
            f"{same if kill['num_rewards'] else '–'} | "
            f"{'the same bytes' if kill['is_model_equal'] else '**differs**'} | "
            f"{'–' if kill['gap'] is None else format(kill['gap'], '.1e')} |"
        )
    lines += _crossing_lines(crossings)
    lines += [
        "",
        "## Nothing shared",
        "",
        "The driver in a mount namespace of its own: no worker finds its directory. Killed, and gone on with from "
        f"checkpoint {apart['resumed_from']} ({', '.join(apart['parts'])}, all through the object store): loss "
        f"difference {_small(apart['difference'])}, the final model "
        f"{'is the same bytes' if apart['is_model_equal'] else '**differs**'}.",
    ]
    return "\n".join(lines) + "\n"


def _crossing_lines(crossings: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "## Split, shared, colocated: one into another",
        "",
        f"GRPO, from checkpoint {CROSSED_STEP} to step {GRPO['knobs']['train.num_steps']}, against the run that went "
        "on in its own layout. Where the same sampler draws, rewards are equal and losses within "
        f"{ALLOWED:g}. vLLM and the ranks make other tokens of the same seeds, so across those a run goes on from the "
        "same state with the same prompts, and what it draws and learns from then on is its own: there the checkpoint "
        "is also opened in both layouts without a step, evaluated by greedy answers, and handed over.",
        "",
        "| saved in | goes on in | drawn by | prompts | rewards | loss difference | handed over | held-out answers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for crossing in crossings:
        restored = crossing.get("restored")
        samplers = dict.fromkeys(SAMPLERS[crossing[side]] for side in ("source", "target"))
        lines.append(
            f"| {crossing['source']} | {crossing['target']} | {', then '.join(samplers)} | "
            f"{_same(crossing['num_prompts'], is_equal=crossing['are_prompts_equal'])} | "
            + (
                f"{_same(crossing['num_rewards'], is_equal=crossing['are_rewards_equal'])} | "
                f"{_small(crossing['difference'])} | – | – |"
                if restored is None
                else f"– | – | {'the same bytes' if restored['is_model_equal'] else '**differs**'} | "
                f"{restored['num_equal_answers']} of {restored['num_answers']} equal, "
                f"{'the same score' if restored['are_scores_equal'] else '**another score**'} |"
            )
        )
    return lines


def _same(count: int, *, is_equal: bool) -> str:
    return f"all {count} equal" if is_equal else "**differ**"


def is_as_before(crossing: dict[str, Any]) -> bool:
    """Return whether a crossing kept all that it can keep."""
    restored = crossing.get("restored")
    if restored is None:
        return bool(
            crossing["are_prompts_equal"] and crossing["are_rewards_equal"] and crossing["difference"] <= ALLOWED
        )
    return bool(crossing["are_prompts_equal"] and restored["is_model_equal"] and restored["are_scores_equal"])


def _small(difference: float) -> str:
    return f"{difference:.0e}" if difference else "0"


def main() -> None:
    """Measure what was asked for, write the page, and exit with 1 if something is further apart than allowed."""
    measures: dict[str, Callable[[RayHead, Path], Any]] = {
        "layouts": measure_layouts,
        "writes": measure_writes,
        "kills": measure_kills,
        "crossings": measure_crossings,
        "apart": measure_apart,
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended before all was measured."))
    which = sys.argv[1:] or list(measures)
    with tempfile.TemporaryDirectory(prefix="pw-proof-") as folder, running_head() as head:
        for name in which:
            found = json.dumps(measures[name](head, Path(folder)))
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"resume-{name}.json").write_text(found)
    places = [RESULTS / f"resume-{name}.json" for name in measures]
    if not all(place.exists() for place in places):
        sys.exit("Not all is measured yet: no report.")
    layouts, writes, kills, crossings, apart = (json.loads(place.read_text()) for place in places)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(report(layouts, writes + kills, crossings, apart), encoding="utf-8")
    float32 = [saved for saved in layouts if "bfloat16" not in saved["source"]]
    far = [f"{s['source']} -> {t}" for s in float32 for t, r in s["resumed"].items() if r["difference"] > ALLOWED]
    far += [
        k["moment"]
        for k in writes + kills
        if k["difference"] > ALLOWED or not (k["are_rewards_equal"] and k["is_model_equal"])
    ]
    far += [f"{c['source']} -> {c['target']}" for c in crossings if not is_as_before(c)]
    print(REPORT.read_text())
    far += ["nothing shared"] if apart["difference"] > ALLOWED else []
    if far:
        sys.exit(f"Not as it was: {', '.join(far)}")


if __name__ == "__main__":
    main()
