"""The tab Summary in a browser: it reads without a script, in both themes, and leads to the timeline."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console.live_console import LiveConsole
from tests.console.made_traces import REAL, imported
from tests.console.window import NAMELESS, until

pytestmark = pytest.mark.browser


def look(page: Page, name: str) -> None:
    """See that every control has a name and nothing is wider than the window; keep pictures where asked for."""
    until(page, f"({NAMELESS})().length === 0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    if shots := os.environ.get("PITWALL_SHOTS"):
        for theme in ("light", "dark"):
            page.evaluate("theme => document.documentElement.setAttribute('data-bs-theme', theme)", theme)
            page.screenshot(path=str(Path(shots) / f"{name}-{theme}.png"), full_page=True)


@pytest.mark.proof
def test_the_summary_of_a_real_trace_reads_without_a_script(page: Page, live_console: LiveConsole) -> None:
    trace = imported(live_console.project, file=REAL / "torch_diff_control.json.gz")
    page.goto(f"{live_console.url}/traces/{trace.pk}/summary")
    expect(page.locator(".tsum-answer")).to_contain_text("Rank 3 computes in 60.5 %")
    expect(page.get_by_role("link", name="Summary")).to_have_attribute("aria-current", "page")
    widths = (
        page.locator(".tsum-bars")
        .first.locator("rect")
        .evaluate_all("all => all.map((one) => parseFloat(one.getAttribute('width')))")
    )
    assert sum(widths) == pytest.approx(100, abs=0.5)
    page.get_by_label("Accelerator").fill("A100")
    page.get_by_role("button", name="Compute").click()
    expect(page.locator("#tsum-use").locator("xpath=ancestor::section")).to_contain_text("FLOP/s dense in bf16")
    look(page, "summary")
    page.locator('[aria-labelledby="tsum-idle"] td a').first.click()
    page.wait_for_url(f"**/traces/{trace.pk}?from=*")
    page.get_by_role("link", name="Where its time goes").click()  # and back, to the summary of that window
    page.wait_for_url(f"**/traces/{trace.pk}/summary?from=*&to=*")
    expect(page.locator(".tsum-answer")).to_contain_text("Rank 3 computes in")
    expect(page.get_by_role("link", name="Whole trace")).to_be_visible()


@pytest.mark.proof
def test_the_difference_of_two_traces_is_asked_for_and_read(page: Page, live_console: LiveConsole) -> None:
    before, after = (
        imported(live_console.project, file=REAL / f"torch_diff_{name}.json.gz") for name in ("control", "test")
    )
    page.goto(f"{live_console.url}/traces/{before.pk}/difference")
    page.get_by_label("After").select_option(after.pk)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".tsum-answer")).to_contain_text("+46.6 ms (+60.1 %)")
    look(page, "difference")
    page.get_by_role("link", name="Swap").click()
    expect(page.locator(".tsum-answer")).to_contain_text("−46.6 ms")


@pytest.mark.proof
def test_memory_is_read_by_kind(page: Page, live_console: LiveConsole) -> None:
    trace = imported(live_console.project, file=REAL / "torch_memory_timeline.raw.gz")
    page.goto(f"{live_console.url}/traces/{trace.pk}/summary")
    expect(page.get_by_role("row", name="Weights")).to_contain_text("MiB")
    look(page, "memory")
