"""The charts of a run with 5,000 series of 10,000 steps: first sight, scrolling, search, memory."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from playwright.sync_api import Page

from tests.bench.web.browser import SCROLL, WATCH_TASKS, counted, process_bytes, renderer_seconds, server_seconds
from tests.bench.web.case import Reading, Window

SERIES, STEPS = 5000, 10_000
FIRST_MS, FPS, MIB = 1000.0, 55.0, 300.0
READING, FLICKING = 1000, 8000  # pixels a second
LAYERS = 64
MODULES = ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.gate", "mlp.up", "mlp.down", "norm.input", "norm.post")
GROUPS = {"reward": 60, "policy": 120, "response": 40, "eval": 240, "time": 100, "throughput": 60, "rollout": 160}
BASES = 64  # curves that all series are made of

# Defines benchDrawn (charts in sight, and how many of them are drawn) and notes when the first and all of them were.
# Only the first cards are looked at until then: the page begins at its top.
WATCH = (
    WATCH_TASKS
    + """
const isDrawn = (body) => body.chart?.uplot && !body.chart.needs && body.chart.uplot.data[0].length > 0;
const isSeen = (body) => {
  const box = body.getBoundingClientRect();
  return box.height > 0 && box.bottom > 100 && box.top < innerHeight;
};
window.benchDrawn = () => {
  const seen = [...document.querySelectorAll("[data-metric] .chart")].filter(isSeen);
  return [seen.length, seen.filter(isDrawn).length];
};
window.bench = { first: 0, all: 0 };
let bodies = [];
const look = () => {
  if (!bodies.length) bodies = [...document.querySelectorAll("[data-metric] .chart")].slice(0, 40).filter(isSeen);
  const drawn = bodies.filter(isDrawn);
  if (drawn.length && !window.bench.first) window.bench.first = performance.now();
  if (drawn.length && drawn.length === bodies.length) window.bench.all = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
)
# From now until every chart in sight is drawn, ms; null where there is none for two seconds, or not all within 30.
WHOLE = """() => new Promise((done) => {
  const began = performance.now();
  const look = () => {
    const [seen, drawn] = window.benchDrawn();
    const past = performance.now() - began;
    if (seen > 0 && seen === drawn) done(past);
    else if (past > 30000 || (seen === 0 && past > 2000)) done(null);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(() => requestAnimationFrame(look));
})"""
FILTER = """([text, isExpression]) => {
  const toggle = document.querySelector("[data-chart-expression]"); // revisions before it have none
  if (toggle && (toggle.getAttribute("aria-pressed") === "true") !== isExpression) toggle.click();
  const input = document.querySelector("[data-chart-search]");
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def names() -> Iterator[str]:
    """Yield SERIES names as a large reinforcement learning run has them: few of all, many of layers and experts."""
    for group, count in GROUPS.items():
        yield from (f"{group}/part_{i:03d}" for i in range(count))
    left = SERIES - sum(GROUPS.values())
    kinds = ("grad_norm", "weight_norm", "update_ratio", "activation", "moe", "optimizer")
    every = (f"{kind}/layer_{layer:02d}.{module}" for kind in kinds for layer in range(LAYERS) for module in MODULES)
    for i, name in zip(range(left), every, strict=False):
        del i
        yield name
    yield from (f"expert_load/expert_{i:04d}" for i in range(max(0, left - len(kinds) * LAYERS * len(MODULES))))


def seed(project: Any, user: Any) -> Mapping[str, Any]:
    """Write the run's points into chunks with roll-ups, as compaction does."""
    from django.db import transaction

    from jobs.ingest.compaction import append_points
    from jobs.models import Attempt, Metric, Run
    from jobs.telemetry.chunks import points

    del user
    run = Run.objects.create(
        project=project, name="five thousand", spec={}, state="finished", step=STEPS, num_steps=STEPS
    )
    Attempt.objects.create(run=run, state="finished", submission_id=f"bench-{run.pk}", step=STEPS)
    rng = np.random.default_rng(0)
    x = np.arange(1, STEPS + 1)
    t = 1_790_000_000_000_000_000 + x * 10**8
    curves = np.cumsum(rng.normal(size=(BASES, STEPS)), axis=1) / 40 + rng.normal(size=(BASES, STEPS)) / 8
    rows = [Metric.objects.create(run=run, name=name) for name in names()]
    assert len(rows) == SERIES
    for start in range(0, SERIES, 50):
        with transaction.atomic():
            part = {
                row.pk: points(x, t, curves[(start + i) % BASES] * (1 + (start + i) / SERIES))
                for i, row in enumerate(rows[start : start + 50])
            }
            append_points(part, attempt=1, through=0)
    return {"run": run.pk}


def look(window: Window, seeded: Mapping[str, Any], rounds: int) -> list[Reading]:
    """Open the run's charts in a browser that knows only the list of runs, scroll, search, and weigh the page."""
    address = f"{window.url}/runs/{seeded['run']}/charts"
    found: dict[tuple[str, str], list[float]] = {}

    def note(what: str, unit: str, value: float | None) -> None:
        if value is None:
            value = np.nan
        found.setdefault((what, unit), []).append(value)

    for _ in range(rounds):
        context = window.context()
        page = context.new_page()
        page.goto(f"{window.url}/runs/")
        page.add_init_script(WATCH)
        for visit in ("first visit", "next visit"):
            took = -renderer_seconds(window.browser), -server_seconds(window.web_pid)
            _open(page, address)
            note(f"run page, page's CPU time, {visit}", "ms", 1000 * (took[0] + renderer_seconds(window.browser)))
            note(f"run page, console's CPU time, {visit}", "ms", 1000 * (took[1] + server_seconds(window.web_pid)))
            note(f"run page, first chart, {visit}", "ms", page.evaluate("window.bench.first"))
            note(f"run page, all charts in sight, {visit}", "ms", page.evaluate("window.bench.all"))
        note("run page, longest task of opening", "ms", max(page.evaluate("window.benchTasks"), default=0))
        note("run page, nodes", "", counted(page)["Nodes"])
        for text, kind in (("layer_3[0-9]", "regular expression"), ("grad_norm", "text")):
            page.evaluate(FILTER, [text, kind != "text"])
            note(f"run page, search by {kind}", "ms", page.evaluate(WHOLE))
        page.evaluate(FILTER, ["", False])
        page.evaluate(WHOLE)
        for name, pace in (("reading", READING), ("flicking", FLICKING)):
            seen = page.evaluate(SCROLL, [pace, 3])
            note(f"run page, scrolling ({name}, {pace} px/s)", "fps", seen["fps"])
            note(f"run page, slowest frame ({name})", "ms", seen["slowest"])
            note(f"run page, drawn while scrolling ({name})", "%", 100 * seen["share"])
            note(f"run page, whole after scrolling ({name})", "ms", page.evaluate(WHOLE))
        note("run page, memory of its process", "MiB", process_bytes(window.browser, page) / 2**20)
        context.close()
    return [_reading(what, unit, values) for (what, unit), values in found.items()]


def _open(page: Page, address: str) -> None:
    page.goto(address, wait_until="commit")
    page.wait_for_load_state("domcontentloaded")
    for _ in range(600):
        if page.evaluate("window.bench.all"):
            return
        page.wait_for_timeout(50)
    raise SystemExit("The run page showed no charts within 30 s")


def _reading(what: str, unit: str, values: list[float]) -> Reading:
    targets = {"ms": FIRST_MS if "first chart" in what else None, "MiB": MIB}
    if unit == "fps":
        return Reading(what=what, unit=unit, values=tuple(values), target=FPS, is_floor=True)
    return Reading(what=what, unit=unit, values=tuple(values), target=targets.get(unit), is_floor=unit == "%")
