"""From a run that fails, over what it looks like, to the form that changes what helps."""

import pytest
from playwright.sync_api import Page, expect

from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import NAMELESS, open_run
from tests.rows import make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

NO_DEVICE_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def test_a_failure_leads_to_the_clone_that_mends_it(page: Page, live_console: LiveConsole) -> None:
    spec = {"name": "too-big-1", "knobs": {"train.micro_batch_size": 4}}
    run = make_run(live_console.project, state="running", spec=spec, user=live_console.user)
    reporter = Reporter(console=live_console, run=run)
    reporter.steps(2)
    open_run(page, live_console, run)
    expect(page.locator("#symptoms section")).to_have_count(0)

    reporter.post([events.log([NO_DEVICE_MEMORY], attempt=1, role="policy", stream="stderr")])
    reporter.terminal_event("failed", cause={"side": "trainer", "role": "policy", "rank": 0, "text": "It ran out."})

    symptom = page.locator('[data-symptom="memory.device"]')
    expect(symptom).to_contain_text(NO_DEVICE_MEMORY)
    expect(symptom.locator(".run-remedies li").first).to_contain_text("Halve the micro batch")
    assert page.evaluate(NAMELESS) == []
    symptom.locator("[data-remedy]").first.click()

    expect(page.locator(".origin-line")).to_have_text(f"Cloned from {run.pk}, 1 change")
    expect(page.locator("[name=name]")).to_have_value("too-big-2")
    field = page.locator('.field[data-name="knobs.train.micro_batch_size"]')
    expect(field).to_be_visible()
    expect(field.locator("input")).to_have_value("2")
    expect(field.locator(".was")).to_have_text("was 4")
    expect(field.locator(".origin")).to_have_attribute("data-origin", "you")
    expect(page.locator("[data-show=changed]")).to_have_attribute("aria-selected", "true")
