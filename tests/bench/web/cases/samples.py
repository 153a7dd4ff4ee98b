"""The samples of a run of 10,000 steps × 64: a step by its address, by an arrow, typed; its charts, filters, search."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from playwright.sync_api import Page

from tests.bench.web.case import Reading, Window
from tests.bench.web.cases.compare import wait_for

STEPS, PER_STEP, GROUP = 10_000, 64, 8
PROMPTS = 500  # of the data, so that each comes again and again
STEP_MS = 500.0
BATCH_STEPS = 50
CHARS = 700  # of a completion

# Ask and return the milliseconds until the rows, or the charts, of the answer stand on the page.
SHOWN = """async ([ask, value]) => {
  const rows = () => [...document.querySelectorAll("[data-samples] tr[data-sample]")];
  const form = document.querySelector("form[data-sample-filter]");
  const before = rows()[0];
  const began = performance.now();
  if (ask === "arrow") form.querySelector(`[data-step="${value}"]`).click();
  else {
    const control = form.elements[ask];
    if (control.type === "checkbox") control.checked = value;
    else control.value = value;
    control.dispatchEvent(new Event("input", { bubbles: true }));
  }
  while (performance.now() - began < 30000) {
    await new Promise((next) => requestAnimationFrame(next));
    const [first] = rows();
    const isEmpty = !document.querySelector('[data-field="samples-empty"]').hidden;
    if ((first && first !== before) || isEmpty) return performance.now() - began;
  }
  return null;
}"""
ANSWER = "performance.getEntriesByType('navigation')[0].responseStart"
WATCH = """
window.benchRows = 0;
window.benchCharts = 0;
const look = () => {
  if (!window.benchRows && document.querySelector("[data-samples] tr")) window.benchRows = performance.now();
  const isDrawn = document.querySelector("[data-sample-charts] circle");
  if (!window.benchCharts && isDrawn) window.benchCharts = performance.now();
  if (!window.benchRows || !window.benchCharts) requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


def seed(project: Any, user: Any) -> Mapping[str, Any]:
    """Let ingest store what a run reports, 64 samples of each step in groups of eight."""
    from datetime import UTC, datetime

    from jobs.ingest.store import AttemptCache, store
    from jobs.models import Attempt, Run
    from tests.batches import delivery

    del user
    run = Run.objects.create(
        project=project, name="ten thousand steps", spec={}, state="running", step=STEPS, num_steps=STEPS
    )
    Attempt.objects.create(run=run, state="running", submission_id=f"bench-{run.pk}", step=STEPS)
    memory, now = AttemptCache(), datetime(2026, 11, 27, tzinfo=UTC)
    rng = np.random.default_rng(0)
    for batch, first in enumerate(range(1, STEPS + 1, BATCH_STEPS), start=1):
        events = [event for step in range(first, first + BATCH_STEPS) for event in _step(step, rng)]
        store([delivery(run.pk, batch, events)], memory=memory, now=now)
    Run.objects.filter(pk=run.pk).update(state="finished")
    Attempt.objects.filter(run=run).update(state="finished")
    return {"run": run.pk}


def _step(step: int, rng: np.random.Generator) -> Iterator[Any]:
    from profiling import events as make

    tokens = rng.integers(20, 600, PER_STEP)
    rewards = np.round(rng.random(PER_STEP) + step / STEPS, 3)
    rewards[: 2 * GROUP] = np.repeat((0.0, 1.0), GROUP)  # two groups of a step have no variance
    for i in range(PER_STEP):
        group = i // GROUP
        prompt = (step * (PER_STEP // GROUP) + group) % PROMPTS
        yield make.sample(
            attempt=1,
            step=step,
            group=group,
            index=i % GROUP,
            prompt=f"Question {prompt}: " + "how many of these are there? " * 10,
            completion=(f"Step {step}, answer {i}. " + "So there are as many as before. " * 40)[:CHARS],
            expected=str(prompt),
            reward=float(rewards[i]),
            rewards={"math": float(rewards[i])},
            tokens=int(tokens[i]),
        )


def look(window: Window, seeded: Mapping[str, Any], rounds: int) -> list[Reading]:
    """Open steps all over the run, and ask the page for others."""
    address = f"{window.url}/runs/{seeded['run']}/samples"
    found: dict[str, list[float]] = {}

    def note(what: str, value: float | None) -> None:
        found.setdefault(what, []).append(np.nan if value is None else value)

    for turn in range(rounds):
        step = 1 + (turn * 3331) % (STEPS - 2)
        context = window.context()
        page = context.new_page()
        page.goto(f"{window.url}/runs/")
        page.add_init_script(WATCH)
        for visit in ("first visit", "next visit"):
            _open(page, f"{address}?step={step}")
            note(f"samples page, rows, {visit}", page.evaluate("window.benchRows"))
            note(f"samples page, charts, {visit}", page.evaluate("window.benchCharts"))
            note(f"samples page, answer of the console, {visit}", page.evaluate(ANSWER))
        note("samples of a step, by an arrow", page.evaluate(SHOWN, ["arrow", "1"]))
        note("samples of a step, typed", page.evaluate(SHOWN, ["step", str(1 + (step + 4999) % STEPS)]))
        note("samples of a step, zero variance", page.evaluate(SHOWN, ["variance", "zero"]))
        note("samples of a step, searched", page.evaluate(SHOWN, ["q", "answer 7."]))
        page.evaluate(SHOWN, ["q", ""])
        note("samples of all steps, zero variance", page.evaluate(SHOWN, ["step", ""]))
        note("samples of all steps", page.evaluate(SHOWN, ["variance", ""]))
        note("samples of all steps, searched", page.evaluate(SHOWN, ["q", f"step {step}, answer 7."]))
        context.close()
    return [_reading(what, values) for what, values in found.items()]


def _open(page: Page, address: str) -> None:
    page.goto(address, wait_until="commit")
    wait_for(page, "window.benchRows && window.benchCharts")


def _reading(what: str, values: list[float]) -> Reading:
    target = STEP_MS if what.startswith("samples of a step") else None
    return Reading(what=what, unit="ms", values=tuple(values), target=target)
