"""A run that does not fit on the cluster that is known is not launched by the first click on New run."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from jobs.models import Run
from tests.console.live_console import LiveConsole
from tests.console.new_run.test_plan_browser import advised, verdict
from tests.jobs.fake_ray import TOKEN, serve

pytestmark = pytest.mark.browser

SHARE = '[name="knobs.rollout.gpu_memory_fraction"]'
TOO_MUCH, ENOUGH = "0.95", "0.5"


@pytest.fixture(scope="module")
def console_cluster() -> Iterator[dict[str, str]]:
    """A cluster of one node with eight H200, as Ray tells of it."""
    with serve() as ray:
        ray.set_gpus(8)
        ray.nodes[0]["resources_total"]["memory"] = 2e12
        yield {"RAY_ADDRESS": ray.address, "RAY_AUTH_TOKEN": TOKEN}


@pytest.fixture
def too_large(page: Page, live_console: LiveConsole) -> Page:
    """The form of a run that does not fit on this cluster, with what would make it fit."""
    page.goto(f"{live_console.url}/runs/new?recipe=verl-grpo-qwen3-8b")
    expect(verdict(page)).to_have_text(re.compile("Fits|Tight"))
    expect(refusal(page)).to_be_hidden()

    page.fill(SHARE, TOO_MUCH)

    expect(verdict(page)).to_have_text("Does not fit")
    expect(advised(page).first).to_be_visible()
    return page


def refusal(page: Page) -> Locator:
    return page.locator("[data-plan-refused]")


def launch_button(page: Page) -> Locator:
    return page.locator("[data-launch]")


def label(page: Page) -> Locator:
    return launch_button(page).locator("[data-launch-label]")


@pytest.mark.proof
def test_it_is_launched_by_a_second_word_and_not_by_the_first(too_large: Page, live_console: LiveConsole) -> None:
    page = too_large
    expect(refusal(page)).to_contain_text("The plan says that it does not fit here.")
    expect(label(page)).to_have_text(re.compile(r"^Does not fit: see \d+ changes?$"))

    launch_button(page).click()
    expect(page.locator("#advice-title")).to_be_focused()
    page.keyboard.press("Control+Enter")  # the key is the button
    expect(page.locator("#advice-title")).to_be_focused()
    assert not Run.objects.filter(project=live_console.project).exists()

    refusal(page).get_by_role("button", name="Launch anyway").click()
    expect(refusal(page)).to_be_hidden()
    expect(launch_button(page)).to_be_focused()
    expect(label(page)).to_have_text(re.compile(r"^Launch"))
    page.fill('[name="knobs.train.seed"]', "7")
    expect(page.locator("[data-plan-busy]")).to_contain_text("planned in")
    expect(label(page)).to_have_text(re.compile(r"^Launch"))  # who has said so is not asked again

    page.fill(SHARE, ENOUGH)
    expect(verdict(page)).not_to_have_text("Does not fit")
    page.fill(SHARE, TOO_MUCH)
    expect(verdict(page)).to_have_text("Does not fit")
    expect(refusal(page)).to_be_visible()  # until it did fit in between

    page.select_option('[name="plan.accelerator"]', "a100-40-sxm")
    expect(page.locator("[data-plan-launches]")).to_be_visible()
    expect(verdict(page)).to_have_text("Does not fit")
    expect(refusal(page)).to_be_hidden()  # hypothetical hardware refuses nothing
    expect(label(page)).to_have_text(re.compile(r"^Launch"))
