"""What happens between a page and the moment from which the server follows for it, and under a finger."""

import re

import pytest
from playwright.sync_api import Page, Route, WebSocketRoute, expect

from jobs.captures.captures import request_capture
from jobs.models import Run, TrashItem
from jobs.retention.deletion import delete_runs, restore
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import until
from tests.rows import NOW, make_run
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]


def running(console: LiveConsole) -> Reporter:
    run = make_run(console.project, state="running", spec={"knobs": {"train.num_steps": 40}}, user=console.user)
    return Reporter(console=console, run=run)


def test_a_run_that_ended_before_the_list_was_followed_is_shown_as_ended(page: Page, live_console: LiveConsole) -> None:
    reporter = running(live_console)
    reporter.steps(2)
    held: list[WebSocketRoute] = []
    page.route_web_socket(re.compile("/ws/updates"), lambda route: held.append(route))  # let in, not followed
    page.goto(f"{live_console.url}/runs")
    state = page.locator(f"#{reporter.run.pk} .state").first
    expect(state).to_have_text("running")

    reporter.terminal_event("finished", cause={})
    wait_until(lambda: Run.objects.get(pk=reporter.run.pk).state == "finished", 60)
    held[0].connect_to_server()

    expect(state).to_have_text("finished")


def test_a_step_between_two_reads_of_a_page_is_shown(page: Page, live_console: LiveConsole) -> None:
    """The overview reads its series; then the page learns how far the run is; a step is stored in between."""
    reporter = running(live_console)
    reporter.steps(2)
    held: list[Route] = []
    page.route(re.compile("/metrics$"), lambda route: held.append(route))
    page.goto(f"{live_console.url}/runs/{reporter.run.pk}")
    until(page, "window.pitwallRun?.store.loaded.get('reward/mean') > 0")

    reporter.steps(1)
    held[0].continue_()
    until(page, "window.pitwallRun.feed.socket")
    reporter.steps(1)

    steps = "window.pitwallRun.store.of('reward/mean').flatMap((series) => series.x)"
    until(page, f"({steps}).at(-1) === 4")
    assert page.evaluate(steps) == [1, 2, 3, 4]


def test_an_open_page_says_that_its_run_was_deleted_and_keeps_what_it_shows(
    page: Page, live_console: LiveConsole
) -> None:
    reporter = running(live_console)
    reporter.steps(2)
    reporter.terminal_event("finished", cause={})
    wait_until(lambda: Run.objects.get(pk=reporter.run.pk).state == "finished", 60)
    page.goto(f"{live_console.url}/runs/{reporter.run.pk}")
    until(page, "window.pitwallRun?.feed.socket && window.pitwallRun.store.loaded.get('reward/mean') > 0")
    said, buttons = page.locator("[data-field=gone]"), page.locator(".run-buttons")
    expect(said).to_be_hidden()
    expect(buttons).to_contain_text("Clone")

    [deleted] = delete_runs(
        runs=list(Run.objects.filter(pk=reporter.run.pk)), user=live_console.user, stop=False, now=NOW
    )

    assert deleted.outcome == "trashed", deleted.message
    expect(said).to_contain_text("This run was deleted.")
    expect(said.get_by_role("link", name="Go to Runs")).to_be_visible()
    expect(buttons).to_be_hidden()  # none of them would be taken
    expect(page.locator("[data-panel=overview] canvas").first).to_be_visible()
    restore(item_id=TrashItem.objects.get(run_id=reporter.run.pk).pk, user=live_console.user, now=NOW)
    expect(said).to_be_hidden()


def test_a_row_that_is_pressed_stays_while_others_change(page: Page, live_console: LiveConsole) -> None:
    reporter = running(live_console)
    reporter.steps(2)
    for first_step in (20, 30):
        request_capture(
            run_id=reporter.run.pk,
            user=None,
            now=reporter.run.created_at,
            tool="torch",
            first_step=first_step,
            num_steps=1,
            roles=[],
            ranks=[],
        )
    page.goto(f"{live_console.url}/runs/{reporter.run.pk}/profile")
    until(page, "window.pitwallRun?.feed.socket")
    rows = page.locator("[data-captures] [data-capture]")
    expect(rows).to_have_count(2)
    other = rows.nth(1)
    expect(other).to_have_attribute("aria-selected", "false")
    box = other.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()

    shown = rows.nth(0)
    reporter.post([events.capture(str(shown.get_attribute("data-capture")), "withdrawn", attempt=1)])
    expect(shown.locator(".state")).to_have_text("withdrawn")
    page.mouse.up()

    expect(other).to_have_attribute("aria-selected", "true")
