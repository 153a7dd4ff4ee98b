"""The page Compare with 50 runs x 20 metrics x 100,000 points: charts, table, pointer, and every spike."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from playwright.sync_api import Page

from tests.bench.web.browser import renderer_seconds, server_seconds
from tests.bench.web.case import Reading, Window

RUNS, POINTS = 50, 100_000
NAMES = (
    "reward/mean",
    "reward/std",
    "reward/max",
    "reward/min",
    "eval/accuracy",
    "loss/policy",
    "kl/reference",
    "policy/entropy",
    "policy/grad_norm",
    "policy/clip_fraction",
    "response/length_mean",
    "response/length_max",
    "groups/zero_variance_fraction",
    "time/step_seconds",
    "time/rollout_seconds",
    "time/reward_seconds",
    "time/update_seconds",
    "time/weight_sync_seconds",
    "throughput/update_tokens_per_second",
    "throughput/rollout_tokens_per_second",
)
SPIKE = 50.0
FIRST_MS, ALL_MS, TABLE_MS, HOVER_MS = 1500.0, 2500.0, 1000.0, 16.0

# Notes when the first chart, and all in sight, were drawn.
WATCH = """
const isDrawn = (body) => body.chart?.uplot && !body.chart.needs && body.chart.uplot.data[0].length > 0;
const isSeen = (body) => {
  const box = body.getBoundingClientRect();
  return box.height > 0 && box.bottom > 0 && box.top < innerHeight;
};
window.bench = { first: 0, all: 0 };
const look = () => {
  const bodies = [...document.querySelectorAll("[data-metric] .chart")].filter(isSeen);
  const drawn = bodies.filter(isDrawn);
  if (drawn.length && !window.bench.first) window.bench.first = performance.now();
  if (drawn.length && drawn.length === bodies.length) window.bench.all = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
# How long the page is busy with each of 60 moves of the pointer over the first chart, ms; layout included.
HOVER = """async () => {
  const { over } = document.querySelector("[data-metric] .chart").chart.uplot;
  const box = over.getBoundingClientRect();
  const move = (share, type = "mousemove") => {
    const at = { clientX: box.left + share * box.width, clientY: box.top + box.height / 2, bubbles: true };
    over.dispatchEvent(new MouseEvent(type, at));
  };
  move(0.1, "mouseenter");
  const took = [];
  for (let i = 0; i < 60; i += 1) {
    await new Promise(requestAnimationFrame);
    const began = performance.now();
    move(0.1 + 0.8 * ((i * 17) % 60) / 60);
    await new Promise((done) => queueMicrotask(() => queueMicrotask(done)));
    document.body.getBoundingClientRect();
    took.push(performance.now() - began);
  }
  return took;
}"""
# Which of these [run, step] of a spike have a colored pixel near their top; the grid is gray.
SPIKES = """([spikes, top, metric]) => {
  const { uplot } = document.querySelector(`[data-metric="${metric}"] .chart`).chart;
  const context = uplot.ctx;
  const y = Math.round(uplot.valToPos(top, "y", true));
  return spikes.filter(([, step]) => {
    const x = Math.round(uplot.valToPos(step, "x", true));
    if (!Number.isFinite(y) || y < uplot.bbox.top) return false;
    const { data } = context.getImageData(x - 3, y, 7, 2);
    for (let i = 0; i < data.length; i += 4) {
      const [r, g, b, a] = data.slice(i, i + 4);
      if (a > 8 && Math.max(r, g, b) - Math.min(r, g, b) > 24) return true;
    }
    return false;
  }).length;
}"""
INTERACTIVE = "performance.getEntriesByType('navigation')[0].domInteractive"


def spike_of(i: int) -> int:
    """Return the step of the i-th run's spike."""
    return (i * 1777 + 500) % POINTS + 1


def seed(project: Any, user: Any) -> Mapping[str, Any]:
    """Write noise around 2 into chunks with roll-ups, as compaction does; each run's reward has one spike."""
    from django.db import transaction

    from jobs.ingest.compaction import append_points
    from jobs.models import Attempt, Metric, Run
    from jobs.telemetry.chunks import points

    rng = np.random.default_rng(0)
    x = np.arange(1, POINTS + 1)
    t = 1_790_000_000_000_000_000 + x * 10**8 + rng.integers(0, 10**6, POINTS)
    ids = []
    for i in range(RUNS):
        with transaction.atomic():
            run = Run.objects.create(
                project=project,
                name=f"grpo-{i}",
                spec={"algorithm": "grpo"},
                state="finished",
                step=POINTS,
                num_steps=POINTS,
                color=i,
                created_by=user,
            )
            Attempt.objects.create(run=run, state="finished", submission_id=f"bench-{run.pk}", step=POINTS)
            fresh = {}
            for name in NAMES:
                y = 2 + 0.2 * rng.normal(size=POINTS)
                if name == NAMES[0]:
                    y[spike_of(i) - 1] = SPIKE
                fresh[Metric.objects.create(run=run, name=name).pk] = points(x, t, y)
            append_points(fresh, attempt=1, through=0)
        ids.append(run.pk)
    return {"runs": ids}


def look(window: Window, seeded: Mapping[str, Any], rounds: int) -> list[Reading]:
    """Open charts and table of all runs in a browser that knows the page's files, and move the pointer."""
    found: dict[str, list[float]] = {}
    address = f"{window.url}/compare?runs={','.join(seeded['runs'])}"
    context = window.context()
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"{window.url}/compare?runs={','.join(seeded['runs'][:2])}&tab=charts")
    for _ in range(rounds):
        took = -renderer_seconds(window.browser), -server_seconds(window.web_pid)
        _open(page, f"{address}&tab=charts")
        found.setdefault("page's CPU time", []).append(1000 * (took[0] + renderer_seconds(window.browser)))
        found.setdefault("console's CPU time", []).append(1000 * (took[1] + server_seconds(window.web_pid)))
        found.setdefault("first chart", []).append(page.evaluate("window.bench.first"))
        found.setdefault("all charts in sight", []).append(page.evaluate("window.bench.all"))
        found.setdefault("a move of the pointer", []).extend(page.evaluate(HOVER))
        drawn = page.evaluate(SPIKES, [_spikes(seeded["runs"]), 0.96 * SPIKE, NAMES[0]])
        found.setdefault("spikes drawn", []).append(drawn)
        page.goto(f"{address}&tab=table", wait_until="domcontentloaded")
        found.setdefault("table", []).append(page.evaluate(INTERACTIVE))
    context.close()
    targets = {"first chart": FIRST_MS, "all charts in sight": ALL_MS, "table": TABLE_MS}
    targets |= {"a move of the pointer": HOVER_MS, "spikes drawn": RUNS}
    return [
        Reading(
            what=f"compare {RUNS} x {len(NAMES)} x {POINTS:,}, {what}",
            values=tuple(values),
            unit=f"of {RUNS}" if what == "spikes drawn" else "ms",
            target=targets.get(what),
            is_floor=what == "spikes drawn",
        )
        for what, values in found.items()
    ]


def _spikes(runs: list[str]) -> list[tuple[str, int]]:
    return [(run, spike_of(i)) for i, run in enumerate(runs)]


def _open(page: Page, address: str) -> None:
    page.goto(address, wait_until="domcontentloaded")
    wait_for(page, "window.bench.all > 0")


def wait_for(page: Page, expression: str, *, seconds: float = 120.0) -> None:
    """Look every 50 ms until the expression is true; the page's own policy allows no other way."""
    for _ in range(int(seconds / 0.05)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise SystemExit(f"{expression} did not become true within {seconds:g} s")
