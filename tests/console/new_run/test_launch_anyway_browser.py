"""A run that does not fit into the memory of the cluster's one node is launched all the same by who says so."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Run
from tests.console.live_console import LiveConsole
from tests.console.new_run.test_launch_gate_browser import label, launch_button, refusal
from tests.console.new_run.test_plan_browser import verdict
from tests.jobs.fake_ray import TOKEN, serve

pytestmark = pytest.mark.browser

NODE_BYTES = 0.3e9


@pytest.fixture(scope="module")
def console_cluster() -> Iterator[dict[str, str]]:
    """A cluster of one node without GPUs, and with less memory than the smallest run takes."""
    with serve() as ray:
        ray.nodes[0]["resources_total"]["memory"] = NODE_BYTES
        yield {"RAY_ADDRESS": ray.address, "RAY_AUTH_TOKEN": TOKEN}


def test_a_run_that_does_not_fit_is_launched_by_a_second_word(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/runs/new")
    page.fill("[name=name]", "too large")
    expect(verdict(page)).to_have_text("Does not fit")
    expect(label(page)).to_have_text("Does not fit")

    launch_button(page).click()
    expect(page.locator("#plan-title")).to_be_focused()
    page.keyboard.press("Control+Enter")  # the key is the button
    expect(page.locator("#plan-title")).to_be_focused()
    assert not Run.objects.filter(project=live_console.project).exists()

    refusal(page).get_by_role("button", name="Launch anyway").click()
    expect(launch_button(page)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/runs/r-\w+$"), timeout=200_000)

    assert [run.name for run in Run.objects.filter(project=live_console.project)] == ["too large"]
