"""A run beside its plan in a browser: asked for when it comes into sight, on hardware that somebody chooses."""

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Attempt
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import NAMELESS, open_run
from tests.rows import make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

SPEC = {
    "algorithm": "grpo",
    "trainer": {"name": "verl", "version": "0.9.1"},
    "model": {"kind": "hub", "id": "Qwen/Qwen2.5-7B"},
    "knobs": {"placement.policy_gpus_per_node": 8},
}


def test_a_run_is_held_against_the_plan_for_chosen_hardware(page: Page, live_console: LiveConsole) -> None:
    run = make_run(live_console.project, state="running", spec=SPEC, user=live_console.user)
    Attempt.objects.filter(run=run).update(num_gpus=8)
    Reporter(console=live_console, run=run).steps(3)
    page.set_viewport_size({"width": 1280, "height": 700})
    open_run(page, live_console, run)
    expect(page.locator("#run-plan section")).to_have_count(0)  # nothing is estimated before somebody looks

    page.locator(".tabs a[data-tab=timeline], nav a[data-tab=timeline]").first.click()
    page.locator("#run-plan").scroll_into_view_if_needed()
    card = page.locator("#run-plan section")
    expect(card.locator("[data-plan-refusal]")).to_contain_text("The cluster does not answer")

    card.locator("select[name=accelerator]").select_option("h200-sxm")
    card.get_by_role("button", name="Plan for it").click()

    expect(card.locator("[data-plan-says]")).to_contain_text("than planned.")
    expect(card.locator("[data-plan-lines=seconds] tbody tr", has_text="Step")).to_contain_text("shorter")
    expect(card.locator("[data-plan-lines=peaks]")).to_contain_text("The run reports no memory peaks.")
    expect(card.get_by_role("link", name="Plan in New run")).to_have_attribute(
        "href", f"/runs/new?from={run.pk}&accelerator=h200-sxm&nodes=1&devices_per_node=8"
    )
    assert page.evaluate(NAMELESS) == []
