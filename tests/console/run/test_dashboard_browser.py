"""A dashboard in a browser: made, filled, ordered and sized with pointer and keys, saved, kept."""

import re

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Dashboard
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import open_run, until
from tests.rows import make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

ORDER = "() => [...document.querySelectorAll('[data-board] > *')].map((card) => card.dataset.metric).join(' ')"


def test_a_dashboard_is_made_arranged_and_there_again(page: Page, live_console: LiveConsole) -> None:
    run = make_run(live_console.project, state="running", spec={}, user=live_console.user)
    Reporter(console=live_console, run=run).steps(4, at_once=4)
    open_run(page, live_console, run, "dashboard")
    page.get_by_role("button", name="Make a dashboard").click()
    dialog = page.get_by_role("dialog", name="New dashboard")
    dialog.get_by_label("Name").fill("Learning")
    dialog.get_by_label("Begin with").select_option("no chart")
    dialog.get_by_role("button", name="Make it").click()
    for name in ("reward/mean", "policy/entropy", "time/step_seconds"):
        page.get_by_label("Add a metric").fill(name)
        page.get_by_role("button", name="Add", exact=True).click()
    until(page, f"() => ({ORDER})() === 'reward/mean policy/entropy time/step_seconds'")
    until(page, "() => document.querySelector('[data-board] [data-metric=\"reward/mean\"] .u-over') !== null")

    steps = page.locator('[data-board] [data-metric="time/step_seconds"]')
    steps.get_by_role("button", name="Move Step time").hover()
    page.mouse.down()
    page.locator('[data-board] [data-metric="reward/mean"]').hover(position={"x": 12, "y": 60})
    page.mouse.up()
    until(page, f"() => ({ORDER})() === 'time/step_seconds reward/mean policy/entropy'")
    steps.get_by_role("button", name="Move Step time").press("ArrowRight")
    until(page, f"() => ({ORDER})() === 'reward/mean time/step_seconds policy/entropy'")
    expect(steps.get_by_role("button", name="Move Step time")).to_be_focused()
    expect(page.locator('[data-field="board-said"]')).to_have_text("Step time: place 2 of 3")
    size = steps.get_by_role("button", name="Size of Step time")
    size.press("ArrowRight")
    size.press("ArrowDown")
    box = steps.bounding_box()
    assert box is not None
    assert box["height"] > 2 * 184 - 20
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("button", name="Save", exact=True)).to_be_hidden()

    board = Dashboard.objects.get()
    assert [(c["metric"], c["width"], c["height"]) for c in board.charts] == [
        ("reward/mean", 1, 1),
        ("time/step_seconds", 2, 2),
        ("policy/entropy", 1, 1),
    ]
    page.goto(f"{live_console.url}/runs/{run.pk}/dashboard?board={board.pk}")
    until(page, f"() => ({ORDER})() === 'reward/mean time/step_seconds policy/entropy'")
    page.locator('[data-board] [data-metric="policy/entropy"] .chart').focus()
    page.keyboard.press("f")
    large = page.get_by_role("dialog", name="Entropy")
    expect(large.get_by_role("button", name="SVG")).to_be_enabled()
    expect(page).to_have_url(re.compile(r"/dashboard\?.*chart=policy"))
    page.reload()
    expect(large.get_by_role("button", name="SVG")).to_be_enabled()
    page.keyboard.press("Escape")
    page.get_by_label("Add a metric").fill("nothing/like_it")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator('[data-field="board-said"]')).to_contain_text("reports no metric “nothing/like_it”")
