"""Knobs changed from the run page, in a browser: the popover, what is refused, the marks and the way back."""

import re

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Command
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import open_run, until
from tests.rows import make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

RATE = "optimizer.learning_rate"


def test_a_knob_is_changed_by_keyboard_refused_with_a_sentence_marked_and_set_back(
    page: Page, live_console: LiveConsole
) -> None:
    run = make_run(
        live_console.project, state="running", spec={"knobs": {"train.num_steps": 20}}, user=live_console.user
    )
    reporter = Reporter(console=live_console, run=run)
    reporter.steps(4)
    open_run(page, live_console, run, "config")
    row = page.locator(f'[data-knob-row="{RATE}"]')
    button = row.locator("[data-change-knob]")
    expect(button).to_be_visible()
    expect(page.locator("[data-change-knob]:visible")).to_have_count(5)

    button.focus()
    page.keyboard.press("Enter")
    panel = page.locator("#live-knob")
    expect(panel).to_be_visible()
    value = panel.get_by_label("Value from the next step on")
    expect(value).to_be_focused()
    expect(value).to_have_value("3e-4")
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    expect(panel.get_by_role("alert")).to_have_text("'7' is not allowed for Learning rate. Use a number from 0 to 1.")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(button).to_be_focused()
    assert not Command.objects.exists()

    page.keyboard.press("Enter")
    page.keyboard.type("1e-3")
    page.keyboard.press("Enter")
    expect(panel).to_be_hidden()
    expect(row.locator("[data-asked]")).to_have_text("0.001 from the next step on")
    command = Command.objects.get(verb="set")
    assert command.payload == {"knobs": {RATE: 1e-3}}

    change = {"command": command.pk, "changes": [{"knob": RATE, "old": 3e-4, "new": 1e-3}]}
    reporter.post([events.note("Learning rate changed", attempt=1, step=5, meta={"knobs": change})])

    expect(row.locator("[data-origin-text]")).to_have_text("changed at step 5")
    expect(row.locator("[data-value]")).to_have_text("0.001")
    expect(row.locator("[data-asked]")).to_have_text("")
    said = f"Learning rate 3e-4 → 0.001 from step 5 on, by {live_console.user.get_username()}"
    until(page, "window.pitwallRun.view.marks.some((mark) => mark.type === 'change' && mark.x === 5)")
    mark = page.evaluate("window.pitwallRun.view.marks.find((mark) => mark.type === 'change')")
    assert mark["text"] == said
    button.click()
    expect(panel.locator("li")).to_have_text([said])
    panel.get_by_role("button", name=re.compile("Set back to 3e-4")).click()
    expect(row.locator("[data-asked]")).to_have_text("3e-4 from the next step on")
    assert Command.objects.filter(verb="set").latest("pk").payload == {"knobs": {RATE: 3e-4}}
