"""Samples of stacks in a browser: from the capture on the Profile tab to the page that says who stands where."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Capture
from tests.console.live_console import LiveConsole
from tests.console.window import NAMELESS, until
from tests.rows import make_artifact, make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

HANGING = (
    "MainThread;Actor.update (engine/policy.py:88);train_step (engine/step.py:41);_allreduce (deepspeed/runtime/zero/"
    "stage_1_and_2.py:1065);all_reduce (torch/distributed/distributed_c10d.py:2810) 297\n"
)
LOADING = (
    "MainThread;Actor.update (engine/policy.py:80);collate (engine/batches.py:55);_pad (engine/batches.py:12) 212\n"
    "MainThread;Actor.update (engine/policy.py:80);collate (engine/batches.py:55);<lambda> (engine/batches.py:19) 88\n"
)
BEAT = "heartbeat;Thread._bootstrap (threading.py:1002);beat (engine/actor.py:31);wait (threading.py:629) 300\n"


def test_from_the_capture_to_who_stands_where(page: Page, live_console: LiveConsole) -> None:
    run = make_run(live_console.project, state="finished", user=live_console.user)
    capture = Capture.objects.create(run=run, attempt=1, tool="stacks", state="ready", first_step=3, num_steps=2)
    for name, rank, text in (("policy", 0, HANGING), ("policy", 1, HANGING + BEAT), ("policy", 2, LOADING)):
        meta = {"role": name, "rank": rank}
        file = make_artifact(
            run, f"{capture.pk}-{name}-{rank}.stacks.txt", type="trace", capture=capture, is_ready=True, meta=meta
        )
        target = Path(file.stored_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    page.goto(f"{live_console.url}/runs/{run.pk}/profile?capture={capture.pk}")

    page.get_by_role("link", name="Show stacks").click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("Where")
    first = page.locator(".stacks-list > li").first
    expect(first).to_contain_text("policy 0 100 %")
    expect(first).to_contain_text("policy 1 100 %")
    expect(first.locator(".stacks-calls > ol > li").first).to_have_text(
        "all_reduce torch/distributed/distributed_c10d.py:2810"
    )
    expect(page.get_by_role("heading", name="Other threads")).to_be_visible()
    assert page.evaluate(NAMELESS) == []
    until(page, "document.documentElement.scrollWidth <= innerWidth")
