"""The list of runs in a browser: the filter line completes, all that match are changed and put back; on a phone."""

import os
from collections.abc import Iterator

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobs.models import Run
from tests.console.live_console import LiveConsole
from tests.console.test_pages_browser import add, open_page

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def _empty(live_console: LiveConsole) -> Iterator[None]:
    Run.objects.filter(project=live_console.project).delete()
    yield
    Run.objects.filter(project=live_console.project).delete()


def test_a_filter_is_completed_and_all_that_match_are_changed(page: Page, live_console: LiveConsole) -> None:
    spec = {"algorithm": "grpo", "knobs": {}}
    about = {"project": live_console.project, "spec": spec, "ended_at": timezone.now()}
    rows = [Run(id=f"r-many{i:03}", name=f"many {i}", state="failed", **about) for i in range(60)]
    Run.objects.bulk_create([*rows, Run(id="r-other", name="other", state="finished", **about)])
    open_page(page, live_console, "/runs")

    page.keyboard.press("/")
    page.keyboard.type("stat")
    expect(page.get_by_role("option").first).to_have_text("state:running, failed, …")
    page.keyboard.press("Tab")
    page.keyboard.type("fai")
    page.get_by_role("option", name="failed").click()
    expect(page.locator("#q")).to_have_value("state:failed ")
    expect(page.locator(".results-foot")).to_contain_text("1–50 of 60 runs")
    page.keyboard.press("Escape")  # leaves the line, as it stands
    page.keyboard.press("j")
    expect(page.locator("tr.is-current")).to_have_count(1)
    expect(page.locator("#q")).to_have_value("state:failed ")

    page.locator("[data-select-all]").check()
    page.get_by_role("button", name="Select all that match").click()
    expect(page.locator("[data-selection-count]")).to_have_text("60 runs selected")
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("60 runs archived")).to_be_visible()
    expect(page.locator("tr[data-run]")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".results-foot")).to_contain_text("1–50 of 60 runs")


def test_a_selection_is_there_again_after_back_but_not_by_a_link(page: Page, live_console: LiveConsole) -> None:
    ids = [add(live_console, name, state="finished").run.pk for name in ("one", "two", "three")]
    open_page(page, live_console, "/runs")
    for run_id in ids[:2]:
        page.locator(f"#{run_id} td.select input").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    page.wait_for_url("**/compare?**")

    page.go_back()

    expect(page.locator("[data-selection-count]")).to_have_text("2 runs selected")
    expect(page.locator("tr[aria-selected=true]")).to_have_count(2)
    expect(page.locator(f"#{ids[2]} td.select input")).not_to_be_checked()
    open_page(page, live_console, "/runs")
    expect(page.locator("[data-selection-count]")).to_be_hidden()


def test_a_wide_list_shows_name_tags_and_id_whole(page: Page, live_console: LiveConsole) -> None:
    run = add(live_console, "grpo qwen2.5-7b math with a name that is long", state="finished").run
    Run.objects.filter(pk=run.pk).update(tags=["baseline", "paper"])
    page.set_viewport_size({"width": 1920, "height": 900})
    open_page(page, live_console, "/runs")

    cut = "[...document.querySelectorAll('.run-name > *')].filter((node) => node.scrollWidth > node.clientWidth + 1)"
    assert page.evaluate(f"{cut}.map((node) => node.textContent.trim()).filter(Boolean)") == []


def test_a_phone_shows_why_a_run_failed_and_stops_another(page: Page, live_console: LiveConsole) -> None:
    one = add(live_console, "a run that goes on", steps=2).run
    failed = add(live_console, "one that failed", state="failed").run
    cause = {"side": "trainer", "text": "Out of memory: policy 1, Update, step 143, while the gradients were reduced"}
    Run.objects.filter(pk=failed.pk).update(cause=cause, ended_at=timezone.now())
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, live_console, "/runs")

    why = page.locator(f"#{failed.pk} .cause")
    expect(why).to_contain_text("while the gradients were reduced")
    assert why.evaluate(
        "(node) => node.scrollWidth <= node.clientWidth + 1 && node.getBoundingClientRect().right <= 390"
    )
    if folder := os.environ.get("SHOTS"):
        page.screenshot(path=f"{folder}/phone.png")
    page.locator(f"#{one.pk} td.select input").check()
    stop = page.get_by_role("button", name="Stop 1 running")
    box = stop.bounding_box()
    assert box is not None
    assert 0 <= box["x"] <= 390 - box["width"]
    stop.click()
    page.get_by_role("dialog").get_by_role("button", name="Stop 1 running").click()
    expect(page.locator(f"#{one.pk} .state")).to_have_text("stopping")
