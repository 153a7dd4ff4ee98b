"""A run, faults at seeded moments, and what came of them."""

import contextlib
import os
import random
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import psutil
from django.utils.html import escape

from tests.proofs.faults import points, trainer
from tests.proofs.faults.stack import SERVICES, Stack, mount, until
from tests.proofs.faults.target import Scene, Target
from tests.proofs.faults.viewer import Viewer

SEED = 20261120
MOMENTS = ("starting", "rollout", "checkpoint")
ENDED = ("finished", "failed", "stopped")
STEPS, EVERY = 8, 2
SETTLE_SECONDS = 60.0
BYSTANDER_SECONDS = 60.0  # for the run beside to do a step
END_SECONDS = 360.0
DISK_MIB = 64.0
SPEC: dict[str, Any] = {
    "knobs": {
        "train.num_steps": STEPS,
        "checkpoint.every_steps": EVERY,
        "rollout.prompts_per_step": 4,
        "rollout.samples_per_prompt": 4,
        "eval.num_prompts": 0,
    }
}
SLOW_REWARD = "import time\n\n\ndef reward(prompt, completion, answer):\n    time.sleep(0.25)\n    return 1.0\n"
SLOW: dict[str, Any] = {"reward": {"kind": "custom", "file_name": "slow.py", "source": SLOW_REWARD}}  # 4 s a step


@dataclass(slots=True)
class Outcome:
    """What came of one fault. `settled` in seconds: to the run's end, or until nothing was behind any more."""

    target: str
    moment: str
    seed: str
    text: str
    when: str = ""
    state: str = ""
    cause: str = ""
    said: str = ""
    settled: float = -1.0
    points: dict[str, int] = field(default_factory=dict)
    frames: dict[str, int] = field(default_factory=dict)
    left: int = -1
    bystander: str = ""
    problems: list[str] = field(default_factory=list)

    def expect(self, is_true: object, sentence: str) -> None:
        """Keep the sentence if it is not so."""
        if not is_true:
            self.problems.append(sentence)


def examine(stack: Stack, target: Target, moments: Sequence[str], *, bystander: str, seed: int = SEED) -> list[Outcome]:
    """Break `target` at these moments of one run, and look at everything that must hold afterwards."""
    outcomes = [
        Outcome(target=target.name, moment=m, seed=f"{seed}/{target.name}/{m}", text=target.text) for m in moments
    ]
    spec = SPEC | (SLOW if target.state == "finished" else {}) | {"hardware": {"layout": target.layout}}
    spec |= {"name": f"{target.name} {' '.join(moments)}"}
    scene = Scene(stack, stack.launch(spec))
    if target.has_disk:
        scene.disk.mkdir(parents=True, exist_ok=True)
        mount(scene.disk, mib=DISK_MIB)
    viewer = Viewer(url=stack.url, run=scene.run, cookie=stack.http.cookies["pitwall_session"])
    at_hand = outcomes[0]
    try:
        before = stack.header(bystander).get("step", 0) if bystander else 0
        for at_hand in outcomes:
            at_hand.when = _wait_for(at_hand.moment, scene, target, random.Random(at_hand.seed))
            strike(scene, target, at_hand)
        for outcome in outcomes:
            evaluate(scene, target, outcome, viewer)
            _check_bystander(stack, target, outcome, bystander, before)
    except (AssertionError, httpx.HTTPError, psutil.Error) as error:
        for outcome in outcomes:
            where = "" if outcome is at_hand else f"in {at_hand.moment}, "
            outcome.problems.append(f"{where}{type(error).__name__}: {error}"[:500])
        with contextlib.suppress(httpx.HTTPError):
            stack.http.post(f"/api/runs/{scene.run}/stop")
    finally:
        viewer.close()
        if target.has_disk:
            subprocess.run(["umount", "--lazy", str(scene.disk)], check=False)
    return outcomes


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return what is kept of a case."""
    return asdict(outcome) | {"is_ok": not outcome.problems, "load": round(os.getloadavg()[0], 1)}


def _wait_for(moment: str, scene: Scene, target: Target, draw: random.Random) -> str:
    """Return once the moment has come, and say in words which it was."""
    if moment == "starting":
        return _wait_for_start(scene, target, draw)
    done = trainer.steps_done(scene.run_dir)
    if moment == "rollout":
        step = max(draw.randint(1, 3), done + 1)
        _until_step(scene, step)
        delay = draw.uniform(0.0, 0.15)
        time.sleep(delay)
        return f"{delay * 1e3:.0f} ms into the rollout of step {step + 1}"
    step = draw.choice([s for s in range(EVERY, STEPS + 1, EVERY) if s > done][:2] or [STEPS])
    partial = scene.run_dir / "checkpoints" / f".step-{step}.draft"
    _until_step(scene, step - 1)
    until(lambda: partial.exists() or _is_over(scene), seconds=180, what=f"checkpoint {step} came", every=0.0005)
    delay = draw.uniform(0.0, 0.02)
    time.sleep(delay)
    return f"{delay * 1e3:.0f} ms into writing checkpoint {step}"


def _wait_for_start(scene: Scene, target: Target, draw: random.Random) -> str:
    def state() -> bool:
        return scene.stack.header(scene.run).get("state") == "starting"

    until(state, seconds=180, what="the run started")
    if target.needs == "runner":
        until(lambda: trainer.runner(scene.run), seconds=180, what="a runner came")
    elif target.needs:
        until(lambda: trainer.worker(scene.run, scene.run_dir, target.needs), seconds=240, what="a worker came")
    delay = draw.uniform(0.0, 3.0)
    time.sleep(delay)
    return f"{delay:.1f} s into {'loading' if target.needs else 'its start'}"


def _until_step(scene: Scene, step: int) -> None:
    def is_there() -> bool:
        if _is_over(scene):
            raise AssertionError(f"the run was over before step {step}")
        return trainer.steps_done(scene.run_dir) >= step

    until(is_there, seconds=240, what=f"step {step} ended", every=0.02)


def _is_over(scene: Scene) -> bool:
    """Return whether the trainer has said its terminal event, or the console knows of an end."""
    states = [e["state"] for e in trainer.events(scene.run_dir) if e["kind"] == "state"]
    return bool(states) and states[-1] in ("done", "failed")


def strike(scene: Scene, target: Target, outcome: Outcome) -> None:
    """Hit, wait, mend; then wait until the console is at work again and nothing is behind."""
    done = trainer.steps_done(scene.run_dir)
    target.hit(scene)
    began = time.monotonic()
    while time.monotonic() - began < target.outage:
        outcome.said = outcome.said or scene.stack.problem()
        time.sleep(0.5)
    if target.mend is not None:
        target.mend(scene)
    if target.state == "failed":
        until(
            lambda: scene.stack.header(scene.run).get("state") in ENDED, seconds=SETTLE_SECONDS, what="it did not end"
        )
        outcome.settled = round(time.monotonic() - began, 1)
        return
    began = time.monotonic() if target.outage else began
    seq = scene.stack.header(scene.run).get("seq", 0)
    is_reporting = bool(trainer.events(scene.run_dir))

    def is_settled() -> bool:
        """Whether all services are there, nothing troubles them, and what came after the fault is stored."""
        problem = scene.stack.problem()
        outcome.said = outcome.said or problem
        header = scene.stack.header(scene.run)
        if problem or not header or header["is_lost_contact"] or header["step"] < done:
            return False
        is_new = header["seq"] > seq or not is_reporting or header["state"] in ENDED
        return is_new and scene.stack.is_up() and all(scene.stack.service(name) for name in SERVICES)

    until(is_settled, seconds=SETTLE_SECONDS, what=f"the console was at work again after {target.name}", every=0.2)
    outcome.settled = round(time.monotonic() - began, 1)


def evaluate(scene: Scene, target: Target, outcome: Outcome, viewer: Viewer) -> None:
    """Wait for the run's end and hold against it all that must be so."""
    _await_end(scene, target, outcome)
    _check_what_is_stored(scene, outcome, viewer)
    _check_processes(scene, outcome)


def _await_end(scene: Scene, target: Target, outcome: Outcome) -> None:
    until(lambda: _has_ended(scene), seconds=END_SECONDS, what="the run ended")
    header = scene.stack.header(scene.run)
    outcome.state, outcome.cause = header["state"], str(header["cause"].get("text", ""))
    outcome.expect(outcome.state == target.state, f"it ended {outcome.state}, not {target.state}: {header['cause']}")
    outcome.expect(header["attempt"] == 1, "another attempt was started")
    if target.state == "failed":
        outcome.expect(header["cause"].get("side") == target.side, f"side {header['cause'].get('side')!r}")
        outcome.expect(re.search(target.cause, outcome.cause), f"the cause says {outcome.cause!r}")
        if target.needs in ("policy", "vllm", "reference"):
            outcome.expect(header["cause"].get("role") == target.needs, f"blamed is {header['cause'].get('role')!r}")
        shown = scene.stack.http.get(f"/runs/{scene.run}").text
        outcome.expect(outcome.cause and escape(outcome.cause)[:60] in shown, "the page does not show the cause")
        outcome.said = outcome.cause


def _has_ended(scene: Scene) -> bool:
    return scene.stack.header(scene.run).get("state") in ENDED


def _check_what_is_stored(scene: Scene, outcome: Outcome, viewer: Viewer) -> None:
    """Hold the console's points against what the trainer wrote, and the viewer's frames against the run's."""

    def found() -> dict[str, int]:
        return points.compare(scene.stack.http, scene.run, scene.run_dir)

    with contextlib.suppress(AssertionError):  # what a killed runner had not shipped comes with the clean-up job
        until(lambda: not found()["lost"], seconds=90, what="points came", every=0.5)
    outcome.points = found()
    for name in ("lost", "doubled", "invented", "changed"):
        outcome.expect(outcome.points[name] == 0, f"{outcome.points[name]} points {name}")
    header = scene.stack.header(scene.run)
    with contextlib.suppress(AssertionError):
        until(lambda: viewer.last >= header["seq"], seconds=60, what="frames came")
    outcome.frames = {
        "sent": header["seq"],
        "lost": header["seq"] - viewer.last + viewer.lost,
        "doubled": viewer.doubled,
    }
    outcome.expect(outcome.frames["lost"] == 0, f"{outcome.frames['lost']} frames lost")
    outcome.expect(viewer.doubled == 0, f"{viewer.doubled} frames doubled")
    if outcome.state == "finished":
        outcome.expect(header["step"] == header["num_steps"], f"{header['step']} steps of {header['num_steps']}")


def _check_processes(scene: Scene, outcome: Outcome) -> None:
    with contextlib.suppress(AssertionError):
        proved = lambda: scene.stack.header(scene.run)["cleanup"].get("processes_left") is not None  # noqa: E731
        until(proved, seconds=180, what="the proof came", every=0.5)
        # Only then: whoever proves it for a killed runner is a job of the run itself.
        until(lambda: not trainer.processes(scene.run), seconds=90, what="processes went", every=0.5)
    left = trainer.processes(scene.run)
    outcome.left = len(left)
    outcome.expect(not left, f"{len(left)} processes left: {'; '.join(map(trainer.about, left[:3]))}")
    proof = scene.stack.header(scene.run)["cleanup"]
    outcome.expect(proof.get("processes_left") == 0, f"the proof says {proof or 'nothing'}")


def _check_bystander(stack: Stack, target: Target, outcome: Outcome, bystander: str, before: int) -> None:
    if not bystander:
        return
    if not target.is_cluster_wide:
        # A case that settles at once leaves it no time for a step, or for its runner's next try to reach the console.
        with contextlib.suppress(AssertionError):
            until(lambda: _goes_on(stack, bystander, before), seconds=BYSTANDER_SECONDS, what="a step beside it")
    header = stack.header(bystander)
    outcome.bystander = f"{header['state']}, step {before} → {header['step']}"
    if target.is_cluster_wide:
        outcome.expect(header["state"] == "failed", f"the other run on the lost cluster is {header['state']}")
        return
    outcome.expect(header["state"] == "running" and not header["is_lost_contact"], f"bystander: {header['state']}")
    outcome.expect(header["step"] > before, "the bystander stood still")


def _goes_on(stack: Stack, bystander: str, before: int) -> bool:
    header = stack.header(bystander)
    return header["step"] > before and not header["is_lost_contact"]
