"""Can it run? in a browser: type a model, choose hardware, read the details, share the address; nothing overflows."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from jobs.catalog.model import models
from tests.console.live_console import LiveConsole
from tests.console.window import NAMELESS, until

pytestmark = pytest.mark.browser


def test_a_question_is_typed_answered_and_shared(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/guide/devices")
    page.wait_for_load_state("networkidle")
    assert page.evaluate(NAMELESS) == []
    page.evaluate("window.isSamePage = true")

    page.fill("#q", "llama-3.1-8b")
    expect(page.locator(".can-table").first.locator("tbody tr")).to_have_count(5)
    page.select_option("#f-method", "sft-qlora")
    expect(page.locator("#detail")).to_be_visible()
    expect(page.locator(".guide-verdict")).to_contain_text("8,030,261,248")
    page.locator(".can-hardware > summary").click()
    page.get_by_label("T4 16 GB").check()
    expect(page.locator("#on-t4")).to_be_visible()
    page.keyboard.press("Escape")
    page.fill("#f-devices", "1")
    page.keyboard.press("Tab")
    expect(page).to_have_url(re.compile(r"devices=1"))
    expect(page).to_have_url(re.compile(r"on=t4"))
    assert page.evaluate("window.isSamePage")

    shared = page.evaluate("location.href")
    page.goto(shared)
    expect(page.locator("#f-devices")).to_have_value("1")
    page.locator("#on-rtx-4090 a").click()
    expect(page.locator("#detail h2")).to_contain_text("4090")
    page.wait_for_load_state("networkidle")
    assert page.evaluate(NAMELESS) == []
    page.get_by_role("link", name="Plan a run with this").click()
    expect(page.locator("#new-run")).to_be_visible()
    expect(page.locator('[name="model.id.hub"]')).to_have_value(re.compile("Llama-3.1-8B"))
    expect(page.locator('[name="plan.accelerator"]')).to_have_value("rtx-4090")
    expect(page.locator('[name="knobs.lora.rank"]')).to_have_value("32")


def test_a_config_is_pasted(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/guide/devices?method=sft&on=h100-sxm")
    page.locator(".can-more > summary").click()
    page.fill("#f-config", '{"model_type": "llama"')
    page.locator("#f-config").blur()
    expect(page.locator("#config-error")).to_contain_text("This is not JSON")
    page.fill("#f-config", json.dumps(dict(models()["qwen3-8b"].config), indent=2))
    page.locator("#f-config").blur()

    expect(page.locator(".guide-verdict")).to_contain_text("8,190,735,360")
    page.reload()
    expect(page.locator(".guide-verdict")).to_contain_text("8,190,735,360")


def test_a_config_that_is_too_long_for_an_address_is_kept_and_goes_on(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/guide/devices?method=sft&on=h100-sxm")
    page.locator(".can-more > summary").click()
    config = {**models()["qwen3-8b"].config, "modules": ["layers.0.mlp"] * 2000}
    page.fill("#f-config", json.dumps(config))
    page.locator("#f-config").blur()

    expect(page.locator(".guide-verdict")).to_contain_text("8,190,735,360")
    expect(page.locator("#f-config")).to_have_value(re.compile("^kept:"))
    until(page, "location.href.length < 1000")
    page.keyboard.press("Escape")  # the open menu lies over the link
    page.get_by_role("link", name="Plan a run with this").click()
    expect(page.locator(".plan-verdict .state")).to_have_text(re.compile("Fits"))
    expect(page.locator('[name="plan.config"]')).to_have_value(re.compile("layers.0.mlp"))


@pytest.mark.proof
def test_it_holds_in_windows_of_any_width(page: Page, live_console: LiveConsole) -> None:
    def holds(what: str) -> None:
        for width in (390, 800, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") == width, what

    for query in ("?model=qwen2.5-72b&method=ppo", "?model=nobody/knows", "?model=7&method=grpo", ""):
        page.goto(f"{live_console.url}/guide/devices{query}")
        holds(query)
    for menu in (".can-hardware", ".can-more"):
        page.locator(f"{menu} > summary").click()
        holds(menu)
        page.locator(f"{menu} > summary").click()
