"""The guide in a browser: type an option and read its knob, go through the list, share the address."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.console.live_console import LiveConsole
from tests.console.window import NAMELESS, until

pytestmark = pytest.mark.browser


@pytest.mark.proof
def test_an_option_is_typed_and_its_knob_is_read(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/guide")
    expect(page.locator(".guide-found")).to_have_text(re.compile(r"^\s*\d+ knobs\s*$"))
    page.wait_for_load_state("networkidle")
    assert page.evaluate(NAMELESS) == []
    assert page.locator("main h1").count() == 1
    page.evaluate("window.isSamePage = true")

    page.keyboard.press("/")
    page.keyboard.type("--micro_train_batch_size")

    expect(page.locator(".guide-detail h2")).to_have_text("Micro-batch")
    expect(page.locator("#q")).to_be_focused()
    expect(page).to_have_url(re.compile(r"/guide/knobs\?q=--micro_train_batch_size$"))
    page.fill("#q", "clip")
    expect(page.locator(".guide-list li")).not_to_have_count(1)
    second = page.locator(".guide-list li a").nth(1)
    name = second.locator("span").inner_text()
    second.click()
    expect(page.locator(".guide-detail h2")).to_have_text(name)
    expect(second).to_have_attribute("aria-current", "true")
    expect(page.locator(".guide-list [aria-current]")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"/guide/knobs/[\w.]+\?q=clip$"))
    page.keyboard.press("j")
    expect(page.locator(".guide-list li a").nth(2)).to_have_attribute("aria-current", "true")
    assert page.evaluate("window.isSamePage")

    shown = page.locator(".guide-detail h2").inner_text()
    page.reload()
    expect(page.locator(".guide-detail h2")).to_have_text(shown)
    expect(page.locator("#q")).to_have_value("clip")
    page.go_back()
    expect(page.locator(".guide-detail h2")).to_have_text(name)


def test_a_question_is_answered_and_a_recipe_is_used(page: Page, live_console: LiveConsole) -> None:
    page.set_viewport_size({"width": 800, "height": 900})
    page.goto(f"{live_console.url}/guide/devices")

    page.fill("#q", "7.6")
    page.select_option("#f-method", "grpo-lora")

    expect(page.locator(".guide-verdict")).to_contain_text("Yes: Qwen2.5-7B")
    expect(page).to_have_url(re.compile(r"/guide/devices\?model=7.6&method=grpo-lora&on="))
    until(page, "document.documentElement.scrollWidth === 800")
    page.goto(f"{live_console.url}/guide/recipes?q=demo")
    page.get_by_role("link", name="Use this recipe").click()
    expect(page).to_have_url(re.compile(r"/runs/new\?recipe=native-"))
    expect(page.locator("h1")).to_have_text("New run")
