"""The charts of a run with many metrics in a browser: cards only near the screen, search, sections, pins."""

import math
import re

import pytest
from playwright.sync_api import Page, expect

from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import open_run, until
from tests.rows import NOW, make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

LAYERS = 200
NS = 10**9
NOW_NS = int(NOW.timestamp() * 1e9)
DRAWN = """([name, points]) => {
  const chart = document.querySelector(`[data-metric="${name}"] .chart`)?.chart;
  return Boolean(chart?.uplot) && !chart.needs && chart.uplot.data[0].length === points;
}"""


def test_cards_are_only_near_the_screen_and_found_sorted_and_pinned(page: Page, live_console: LiveConsole) -> None:
    run = make_run(live_console.project, state="running", spec={}, user=live_console.user)
    reporter = Reporter(console=live_console, run=run)
    names = ["reward/mean", *(f"grad/layer_{i:03d}" for i in range(LAYERS))]

    def report(step: int) -> None:
        reporter.post([events.metric(dict.fromkeys(names, step / 7), attempt=1, step=step, t=NOW_NS)])

    report(1)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/series?" in request.url else None)
    open_run(page, live_console, run, "charts")
    until(page, DRAWN, ["grad/layer_000", 1])
    assert len(asked) == 1, "one request has all that came into sight"
    assert 10 < page.locator("[data-metric]").count() < 60
    keys = {kind: page.locator(f'[data-panel="charts"] [data-{kind}-key]') for kind in ("odd", "gap", "checkpoint")}
    assert not any(key.is_visible() for key in keys.values()), "the legend names what there is"
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height > LAYERS / 4 * 180, "sections keep the height of all their cards"

    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    until(page, DRAWN, ["grad/layer_199", 1])
    assert page.locator("[data-metric]").count() < 60
    expect(page.locator('[data-metric="grad/layer_000"]')).to_have_count(0)
    assert page.evaluate("window.pitwallRun.view.charts.size") < 80, "charts that left have let their canvas go"
    assert page.evaluate("document.documentElement.scrollHeight") == height
    report(2)
    until(page, DRAWN, ["grad/layer_199", 2])
    page.evaluate("scrollTo(0, 0)")
    until(page, DRAWN, ["grad/layer_000", 2])  # what comes into sight has caught up

    search = page.get_by_role("searchbox", name="Filter metrics")
    search.fill("layer_1[0-4]5")
    expect(page.locator('[data-field="charts-empty"]')).to_contain_text("No metric matches")
    page.get_by_role("button", name="Regular expression").click()
    expect(page.locator("[data-metric]")).to_have_count(5)
    search.fill("layer_1[0-4")
    expect(page.locator('[data-field="charts-search-problem"]')).to_contain_text("is not a regular expression")
    expect(page.locator("[data-metric]")).to_have_count(5)
    search.fill("")

    page.locator('[data-metric="grad/layer_002"]').hover()
    page.locator('[data-metric="grad/layer_002"]').get_by_role("button", name="Pin").click()
    pinned = page.get_by_role("region", name="Pinned")
    expect(pinned.locator("[data-metric]")).to_have_count(1)
    page.get_by_role("button", name=re.compile("^grad")).click()
    expect(page.locator("[data-metric]")).to_have_count(2)
    pinned.locator('[data-metric="grad/layer_002"]').get_by_role("button", name="Full screen").click()
    page.wait_for_url(re.compile("chart=grad"))
    page.reload()
    expect(pinned.locator('[data-metric="grad/layer_002"]')).to_be_visible()
    expect(page.locator("[data-metric]")).to_have_count(2)
    full = page.get_by_role("dialog", name="grad/layer_002")
    with page.expect_download() as saved:
        full.get_by_role("button", name="CSV").click()
    head, first, *_ = saved.value.path().read_text().splitlines()
    assert head == "step,grad/layer_002,grad/layer_002 (smoothed 0.6)"
    assert first.startswith("1,0.1428")


def test_a_chart_over_tokens_marks_what_it_leaves_out_and_says_what_was_not_recorded(
    page: Page, live_console: LiveConsole
) -> None:
    run = make_run(live_console.project, state="running", spec={}, user=live_console.user)
    reporter = Reporter(console=live_console, run=run)
    steps = [step for step in range(1, 61) if not 30 <= step < 40]
    loss = {step: math.sin(step) for step in steps} | {7: 90.0, 50: math.nan}
    report = [{"loss": loss[step], "train/tokens": 100.0} for step in steps]
    reporter.post([events.metric(y, attempt=1, step=x, t=NOW_NS) for x, y in zip(steps, report, strict=True)])
    open_run(page, live_console, run, "charts?x=tokens&by=mean&smooth=0.8&clip=1")
    until(page, DRAWN, ["loss", 50])
    chart = "document.querySelector('[data-metric=loss] .chart').chart"

    shown = page.evaluate(f"(({{ x, breaks, smooth }}) => [x, breaks, smooth])({chart}.shown.lines[0].column)")
    assert [shown[0][0], shown[0][-1], shown[1]] == [100, 5000, [29]]
    assert shown[2][4] == pytest.approx(sum(loss[step] for step in range(1, 6)) / 5)
    assert page.evaluate(f"{chart}.uplot.scales.y.max") < 2
    assert page.evaluate(f"{chart}.shown.odd.map(([x]) => x)") == [4000]
    expect(page.locator('[data-panel="charts"] [data-odd-key]')).to_be_visible()
    expect(page.locator('[data-panel="charts"] [data-gap-key]')).to_be_visible()
    page.locator('[data-metric="loss"]').focus()
    page.keyboard.press("f")
    with page.expect_download() as saved:
        page.get_by_role("dialog", name="loss").get_by_role("button", name="CSV").click()
    head, first, *_ = saved.value.path().read_text().splitlines()
    assert head == "tokens,loss,loss (smoothed mean:5)"
    assert first.startswith("100,0.84")
    page.keyboard.press("Escape")

    page.locator('[data-panel="charts"] [data-axis]').select_option("samples")
    expect(page.locator('[data-metric="loss"] .chart')).to_contain_text(f"No samples were recorded by {run.name}.")
    page.locator('[data-panel="charts"] [data-axis]').select_option("step")
    until(page, f"{chart}.uplot && {chart}.shown.lines[0].column.x[0] === 1")
    expect(page.locator('[data-panel="charts"] [data-axis-note]')).to_be_empty()


def test_a_click_on_a_point_says_what_that_step_was_and_back_leads_back(page: Page, live_console: LiveConsole) -> None:
    run = make_run(live_console.project, state="running", spec={}, user=live_console.user)
    reporter = Reporter(console=live_console, run=run)
    reporter.steps(8, at_once=4)
    readings = [reporter.clock - 9 * NS, reporter.clock + 2 * NS]  # none while a step went on
    told = {"cpu_percent": 40.0, "gpu0_power_watts": 300.0}
    reporter.post([events.system(told, attempt=1, role="runner", t=t) for t in readings])
    open_run(page, live_console, run, "charts")
    until(page, DRAWN, ["reward/mean", 8])
    before = page.evaluate("location.href")
    over = page.locator('[data-metric="reward/mean"] .u-over')
    box = over.bounding_box()
    assert box is not None
    end = page.evaluate("window.pitwallRun.view.end")

    over.click(position={"x": box["width"] * 5 / end, "y": 30})

    panel = page.get_by_role("complementary", name="Step 5")
    expect(panel.locator('[data-step-part="phases"]')).to_contain_text("Rollout")
    expect(panel.locator('[data-step-part="samples"]')).to_contain_text("Step 5: what is")
    expect(panel.locator('[data-step-part="logs"] pre')).to_contain_text("step 5 of the driver")
    expect(panel.locator('[data-step-part="logs"] pre')).not_to_contain_text(re.compile("step [46]"))
    expect(panel.locator('[data-step-part="nodes"]')).to_contain_text("≈ 40")
    expect(panel.locator('[data-step-part="nodes"]')).to_contain_text("the readings nearest to it")
    expect(page).to_have_url(re.compile(r"point=5"))
    panel.get_by_role("button", name="Later step").click()
    expect(page.get_by_role("complementary", name="Step 6")).to_contain_text("Step 6: what is")
    page.go_back()
    expect(page.locator("[data-step-panel]")).to_be_hidden()
    expect(page).to_have_url(before)
    page.goto(f"{before}?point=3")
    expect(page.get_by_role("complementary", name="Step 3")).to_contain_text("Step 3: what is")
    expect(page.locator('[data-step-part="nodes"]')).to_contain_text("Device 0, power, W")
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator("[data-step-panel]")).to_be_hidden()
    expect(page).to_have_url(before)

    page.locator('[data-metric="reward/mean"] .chart').focus()
    page.keyboard.press("f")
    large = page.get_by_role("dialog", name="Reward")
    expect(large.locator(".u-over")).to_be_visible()
    until(page, "() => document.querySelector('dialog[data-dialog=chart] .chart').chart.shown.data[0].length === 8")
    size = large.locator(".u-over").bounding_box()
    assert size is not None
    large.locator(".u-over").click(position={"x": size["width"] * 7 / end, "y": 30})
    inside = large.get_by_role("complementary", name="Step 7")
    expect(inside).to_contain_text("Step 7: what is")
    inside.get_by_role("button", name="Earlier step").click()
    expect(large.get_by_role("complementary", name="Step 6")).to_contain_text("Step 6: what is")
    page.keyboard.press("Escape")
    expect(page.locator("[data-step-panel]")).to_be_hidden()
    expect(large).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator('dialog[data-dialog="chart"]')).to_be_hidden()

    axis = page.locator('[data-metric="reward/mean"] .u-axis').first
    axis.click(position={"x": box["width"] * 4 / end, "y": 8})
    notes = page.get_by_role("dialog", name="Notes on steps")
    expect(notes.get_by_label("Step")).to_have_value("4")
    notes.get_by_label("Note", exact=True).fill("the data changed here")
    notes.get_by_role("button", name="Write the note").click()
    until(page, "() => window.pitwallRun.view.marks.some(({ x, type }) => x === 4 && type === 'note')")
    page.keyboard.press("a")
    notes.get_by_role("button", name="Delete the note on step 4").click()
    until(page, "() => !window.pitwallRun.view.marks.some(({ type }) => type === 'note')")
    page.keyboard.press("Escape")

    chart = page.locator('[data-metric="reward/mean"] .chart')
    until(page, DRAWN, ["reward/mean", 8])
    chart.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Step 8")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("complementary", name="Step 7")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("[data-step-panel]")).to_be_hidden()
    expect(chart).to_be_focused()

    page.get_by_role("link", name="System").click()
    course = page.locator("svg[data-system-course]")
    expect(course).to_be_visible()
    area = course.bounding_box()
    assert area is not None
    course.click(position={"x": 2, "y": 50})
    expect(page.get_by_role("status")).to_contain_text(["No step was under way at that time."])
    course.click(position={"x": area["width"] - 2, "y": 50})
    expect(page.get_by_role("complementary", name="Step 8")).to_contain_text("Step 8: what is")
