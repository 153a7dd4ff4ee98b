"""Zooming in on a million points: from the choice of a window until its finer columns are drawn."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.bench.web.case import Reading, Window
from tests.bench.web.cases.compare import wait_for

POINTS = 1_000_000
SPIKE = 50.0
ZOOM_MS = 100.0
WINDOWS = ((300_000, 700_000), (480_000, 520_000), (499_000, 501_000), (499_900, 500_100))  # the spike is in all

# Zooms all charts to [min, max]; gives how long it took until what was read for it is drawn, ms, and the greatest value
# that a chart then holds.
ZOOM = """([min, max]) => new Promise((done) => {
  const { store, view } = window.pitwallCompare;
  const began = performance.now();
  const before = store.onRead;
  store.onRead = (names) => {
    store.onRead = before;
    before(names);
    const { chart } = document.querySelector("[data-metric] .chart");
    const look = () => {
      if (chart.needs) return requestAnimationFrame(look);
      const held = chart.shown.lines.flatMap(({ column }) => [...column.y, ...(column.high ?? [])]);
      done([performance.now() - began, Math.max(...held)]);
    };
    look();
  };
  view.setZoom({ min, max, axis: 'step' });
})"""


def seed(project: Any, user: Any) -> Mapping[str, Any]:
    """Write one run's reward: noise around 2 with a spike in the middle."""
    from django.db import transaction

    from jobs.ingest.compaction import append_points
    from jobs.models import Attempt, Metric, Run
    from jobs.telemetry.chunks import points

    run = Run.objects.create(
        project=project,
        name="a million",
        spec={},
        state="finished",
        step=POINTS,
        num_steps=POINTS,
        created_by=user,
    )
    Attempt.objects.create(run=run, state="finished", submission_id=f"bench-{run.pk}", step=POINTS)
    x = np.arange(1, POINTS + 1)
    y = 2 + 0.2 * np.random.default_rng(0).normal(size=POINTS)
    y[POINTS // 2] = SPIKE
    with transaction.atomic():
        row = Metric.objects.create(run=run, name="reward/mean")
        append_points({row.pk: points(x, 1_790_000_000_000_000_000 + x * 10**8, y)}, attempt=1, through=0)
    return {"run": run.pk}


def look(window: Window, seeded: Mapping[str, Any], rounds: int) -> list[Reading]:
    """Zoom into each window from the whole, again and again."""
    context = window.context()
    page = context.new_page()
    page.goto(f"{window.url}/compare?runs={seeded['run']}&tab=charts")
    wait_for(page, "document.querySelector('[data-metric] .chart')?.chart?.uplot?.data[0].length > 0")
    took: list[float] = []
    held: list[float] = []
    for _ in range(rounds):
        for low, high in WINDOWS:
            seconds, most = page.evaluate(ZOOM, [low, high])
            took.append(seconds)
            held.append(most)
    context.close()
    return [
        Reading(what=f"zoom in {POINTS:,} points", values=tuple(took), unit="ms", target=ZOOM_MS),
        Reading(what=f"zoom in {POINTS:,} points, the spike", values=tuple(held), unit="", target=SPIKE, is_floor=True),
    ]
