"""Markup in everything that people and trainers may write, and how a page tells that it was taken for markup."""

from jobs.models import Run
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.rows import make_artifact, make_run

MARKUP = "<img src=x class=evil onerror='window.hacked=1'>\"'`${1}</script>{{7*7}}"
TAKEN_FOR_MARKUP = "Boolean(window.hacked || document.querySelector(\".evil, img[src='x']\"))"
CAUSE = {"side": "trainer", "text": MARKUP, "log_line": MARKUP, "role": MARKUP}


def hostile_run(console: LiveConsole) -> Run:
    """Return a running run with a few steps that has reported markup wherever text is free."""
    spec = {"name": MARKUP, "data": {"system_prompt": MARKUP}, "model": {"kind": "path", "id": f"/{MARKUP}"}}
    texts = {"note": MARKUP, "tags": ["<img/src=x/class=evil>"], "activity": MARKUP, "wait_reason": MARKUP}
    run = make_run(console.project, state="running", spec=spec, user=console.user, **texts)
    make_artifact(run, MARKUP, meta={"checksum": MARKUP})
    reporter = Reporter(console=console, run=run)
    reporter.steps(12, at_once=12)
    head = {"attempt": 1, "step": 12, "role": "driver"}
    sample = {"kind": "sample", **head, "rank": 0, "t": reporter.clock, "group": 0, "index": 0, "reward": 1.0}
    texts_of_sample = {"prompt": MARKUP, "completion": MARKUP, "expected": MARKUP, "rewards": {MARKUP[:60]: 1.0}}
    span = events.span("rollout", start=reporter.clock, duration=10**9, attempt=1, step=12, role="driver")
    state = {"kind": "state", **head, "rank": 0, "t": reporter.clock, "state": "training", "text": MARKUP}
    reporter.post(
        [
            events.metric({MARKUP.replace(",", ""): 1.0, "reward/mean": 0.5}, attempt=1, step=12, t=reporter.clock),
            {**span, "name": MARKUP},  # type: ignore[typeddict-unknown-key]
            events.log([MARKUP], attempt=1, role="driver"),
            events.log([MARKUP], attempt=1, role="<img src=x>"),
            events.note(MARKUP, attempt=1, step=12),
            {**sample, **texts_of_sample},  # type: ignore[list-item]
            state,  # type: ignore[list-item]
        ]
    )
    return run
