"""The tab Summary in a browser: it reads without a script, in both themes, and leads to the timeline."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.live_console import LiveConsole
from tests.console.made_traces import REAL, imported
from tests.console.window import NAMELESS

pytestmark = pytest.mark.browser


def test_the_summary_of_a_real_trace_reads_in_both_themes(page: Page, live_console: LiveConsole) -> None:
    trace = imported(live_console.project, file=REAL / "torch_diff_control.json.gz")
    page.goto(f"{live_console.url}/traces/{trace.pk}/summary")
    expect(page.locator(".tsum-answer")).to_contain_text("rank 3 computes in 60.5 %")
    expect(page.get_by_role("link", name="Summary")).to_have_attribute("aria-current", "page")
    assert page.evaluate(NAMELESS) == []
    # The bar of the worker is full, and the page no wider than the window.
    widths = (
        page.locator(".tsum-bars")
        .first.locator("rect")
        .evaluate_all("all => all.map(r => parseFloat(r.getAttribute('width')))")
    )
    assert sum(widths) == pytest.approx(100, abs=0.5)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    page.get_by_label("Accelerator").fill("A100")
    page.get_by_role("button", name="Reckon").click()
    expect(page.locator("#tsum-use").locator("xpath=ancestor::section")).to_contain_text("FLOP/s dense in bf16")
    for theme in ("dark", "light"):
        page.evaluate("theme => document.documentElement.setAttribute('data-bs-theme', theme)", theme)
        if shots := os.environ.get("PITWALL_SHOTS"):
            page.screenshot(path=str(Path(shots) / f"summary-{theme}.png"), full_page=True)
    gap = page.locator('[aria-labelledby="tsum-idle"] td a').first
    gap.click()
    page.wait_for_url(f"**/traces/{trace.pk}?from=*")
