"""Markup in everything that people and trainers may write: the pages show it as text, in a browser."""

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Attempt, Run
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.rows import make_artifact, make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

MARKUP = "<img src=x class=evil onerror='window.hacked=1'>\"'`${1}</script>{{7*7}}"
TABS = ("", "/charts", "/timeline", "/samples", "/logs", "/config", "/files")


def hostile_run(console: LiveConsole) -> Run:
    """Return a running run that has reported markup wherever text is free."""
    spec = {"name": MARKUP, "data": {"system_prompt": MARKUP}, "model": {"kind": "path", "id": f"/{MARKUP}"}}
    texts = {"note": MARKUP, "tags": ["<img/src=x/class=evil>"], "activity": MARKUP, "wait_reason": MARKUP}
    run = make_run(console.project, state="running", spec=spec, user=console.user, **texts)
    make_artifact(run, MARKUP, meta={"checksum": MARKUP})
    reporter = Reporter(console=console, run=run)
    head = {"attempt": 1, "step": 1, "role": "driver"}
    sample = {"kind": "sample", **head, "rank": 0, "t": reporter.clock, "group": 0, "index": 0, "reward": 1.0}
    texts_of_sample = {"prompt": MARKUP, "completion": MARKUP, "expected": MARKUP, "rewards": {MARKUP[:60]: 1.0}}
    span = events.span("rollout", start=reporter.clock, duration=10**9, attempt=1, step=1, role="driver")
    state = {"kind": "state", **head, "rank": 0, "t": reporter.clock, "state": "training", "text": MARKUP}
    reporter.post(
        [
            events.metric({MARKUP.replace(",", ""): 1.0, "reward/mean": 0.5}, attempt=1, step=1, t=reporter.clock),
            {**span, "name": MARKUP},  # type: ignore[typeddict-unknown-key]
            events.log([MARKUP], attempt=1, role="driver"),
            events.log([MARKUP], attempt=1, role="<img src=x>"),
            events.note(MARKUP, attempt=1, step=1),
            {**sample, **texts_of_sample},  # type: ignore[list-item]
            state,  # type: ignore[list-item]
        ]
    )
    return run


def test_markup_stays_text_on_every_page(page: Page, live_console: LiveConsole) -> None:
    run = hostile_run(live_console)
    page.goto(f"{live_console.url}/runs/{run.pk}")
    expect(page.locator("h1")).to_contain_text("<img src=x")
    while_failed = {"side": "trainer", "text": MARKUP, "log_line": MARKUP, "role": MARKUP}

    for path in (*(f"/runs/{run.pk}{tab}" for tab in TABS), "/", "/runs", "/cluster", f"/runs/new?from={run.pk}"):
        page.goto(live_console.url + path)
        page.wait_for_timeout(300)  # what scripts draw comes after the page; there is no event for "nothing more"
        assert page.locator(".evil, img[src='x']").count() == 0, path
        assert page.evaluate("window.hacked") is None, path
    Run.objects.filter(pk=run.pk).update(state="failed", cause=while_failed)
    Attempt.objects.filter(run=run).update(state="failed", cause=while_failed)
    for path in ("", f"/runs/{run.pk}", "/runs"):
        page.goto(live_console.url + path)
        page.wait_for_timeout(300)  # the same
        assert page.locator(".evil, img[src='x']").count() == 0, path
