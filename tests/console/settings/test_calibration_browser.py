"""Calibration in a browser: looked for when it comes into sight, taken over with a click, undone with another."""

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Membership
from tests.console.live_console import LiveConsole
from tests.console.window import NAMELESS
from tests.measured_runs import four_runs

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]


@pytest.mark.proof
def test_what_runs_measured_is_taken_over_and_undone(page: Page, live_console: LiveConsole) -> None:
    Membership.objects.filter(user=live_console.user).update(role="admin")
    four_runs(live_console.project, live_console.user, rollout=1.6, update=0.7)

    page.goto(f"{live_console.url}/settings")
    page.locator("#calibration").scroll_into_view_if_needed()
    card = page.locator("#calibration section")
    rollout = card.locator("[data-constant-proposal='decode.pace']")
    expect(rollout).to_contain_text("1.6")
    expect(card.locator("[data-says]")).to_contain_text("0 % with these values")
    assert page.evaluate(NAMELESS) == []
    card.get_by_role("button", name="Use these values").click()

    expect(page.get_by_text("now use what runs measured")).to_be_visible()
    page.locator("#calibration").scroll_into_view_if_needed()
    expect(rollout).to_contain_text("measured")
    card.get_by_role("button", name="Undo the last").click()

    expect(page.get_by_text("are as before.")).to_be_visible()
    page.locator("#calibration").scroll_into_view_if_needed()
    expect(rollout).to_contain_text("assumed")
