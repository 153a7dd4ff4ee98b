"""The run page in a browser, on a real console: it grows, survives a cut, searches, zooms, and says what is wrong."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from jobs.models import Attempt, LogChunk, Sample, SampleReview
from jobs.runs.lifecycle import finish
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import open_run, until
from tests.rows import NOW, make_artifact, make_run
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

NOW_NS = int(NOW.timestamp() * 1e9)
WINDOW = "window.pitwallRun.tabs.timeline.timeline.view"
STEPS = "window.pitwallRun.store.of('reward/mean').flatMap((series) => series.x)"


def start(live_console: LiveConsole, *, state: str = "running", steps: int = 0, **fields: Any) -> Reporter:
    spec = {"knobs": {"train.num_steps": 100, "eval.every_steps": 0}}
    run = make_run(live_console.project, state=state, spec=spec, user=live_console.user, **fields)
    reporter = Reporter(console=live_console, run=run)
    reporter.steps(steps)
    return reporter


def wait_for_steps(page: Page, count: int) -> None:
    until(page, f"({STEPS}).length >= {count}")


def test_charts_grow_without_a_reload(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=3)
    open_run(page, live_console, reporter.run)
    wait_for_steps(page, 3)
    page.evaluate("window.isSamePage = true")

    reporter.steps(5)

    wait_for_steps(page, 8)
    expect(page.locator('[data-field="step"]')).to_have_text("8")
    head = page.locator('[data-plan="reward"]').locator("xpath=..").locator('[data-part="value"]')
    expect(head).to_have_text("0.440")
    expect(page.locator('[data-field="latest-title"]')).to_have_text("Samples of step 8")
    assert page.evaluate("window.isSamePage") is True


def test_a_cut_socket_leaves_no_gap_and_no_double(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=4)
    open_run(page, live_console, reporter.run)
    wait_for_steps(page, 4)
    page.evaluate("window.isCut = true; window.sockets.at(-1).close()")
    expect(page.locator('[data-field="live"]')).to_have_attribute("data-live", "off")

    reporter.steps(6)
    page.evaluate("window.isCut = false")
    wait_for_steps(page, 10)
    reporter.steps(2)

    wait_for_steps(page, 12)
    assert page.evaluate(STEPS) == list(range(1, 13))
    spans = "window.pitwallRun.store.lanes.byKey.get('driver|0')?.rows[0].start.length"
    until(page, f"{spans} >= 4 * 12")  # they are read apart from the series
    assert page.evaluate(spans) == 4 * 12
    expect(page.locator('[data-field="live"]')).to_have_attribute("data-live", "on")


def test_what_arrives_while_a_part_is_read_counts_once(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    page.goto(f"{live_console.url}/runs/{reporter.run.pk}")
    reporter.steps(20)  # while the page reads series and spans and connects

    wait_for_steps(page, 22)
    until(page, "window.pitwallRun.store.lanes.steps.size >= 22")
    assert page.evaluate(STEPS) == list(range(1, 23))
    assert page.evaluate("window.pitwallRun.store.lanes.byKey.get('driver|0').rows[0].start.length") == 4 * 22


def test_series_that_could_not_be_read_are_read_again_without_a_click(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=3)
    refused: list[str] = []
    held: list[Route] = []
    is_over = False

    def refuse_twice(route: Route) -> None:
        if is_over:
            route.continue_()
        elif len(refused) == 2:  # the tab's own read, and that of the page's start
            held.append(route)
        else:
            refused.append(route.request.url)
            route.fulfill(status=503, json={"problems": [{"message": "The database is busy."}]})

    page.route("**/series?**", refuse_twice)
    open_run(page, live_console, reporter.run)

    expect(page.locator('[data-field="charts-error"]')).to_contain_text("The database is busy.")
    is_over = True  # not by unroute, which lets go of what is held by itself, at any moment
    for route in held:
        route.continue_()
    wait_for_steps(page, 3)
    expect(page.locator('[data-field="charts-error"]')).to_be_empty()


@pytest.mark.proof
def test_values_that_are_not_finite_stay_visible(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    open_run(page, live_console, reporter.run, "charts")
    event = reporter.step_events(3)
    for one in event:
        if one["kind"] == "metric":
            one["values"]["policy/entropy"] = "NaN"
    reporter.post(event)

    chart = "document.querySelector('[data-metric=\"policy/entropy\"] .chart').chart"
    until(page, f"{chart}?.shown?.odd.length === 1")
    assert page.evaluate(f"{chart}.shown.odd[0][0]") == 3
    expect(page.locator('[data-metric="policy/entropy"] [data-part="value"]')).to_have_text("NaN")


@pytest.mark.proof
def test_a_constant_that_smoothing_blurs_is_drawn_with_few_ticks(page: Page, live_console: LiveConsole) -> None:
    """Smoothed, 0.0003 differs from itself in the last digit: ticks over that span never end."""
    reporter = start(live_console)
    constants = {"policy/learning_rate": 0.0003, "groups/zero_variance_fraction": 0.0, "sync/bytes": 120_320.0}
    reporter.post([events.metric(constants, attempt=1, step=step, t=NOW_NS) for step in range(1, 41)])
    open_run(page, live_console, reporter.run, "charts")
    rate = "document.querySelector('[data-metric=\"policy/learning_rate\"] .chart').chart"
    until(page, f"{rate}?.uplot?.data[0].length === 40")

    low, high = page.evaluate(f"[{rate}.uplot.scales.y.min, {rate}.uplot.scales.y.max]")

    assert low <= 0.0003 - 1e-5
    assert high >= 0.0003 + 1e-5
    for is_log in ("true", "false"):
        page.evaluate(f"window.pitwallRun.view.isLog = {is_log}; window.pitwallRun.view.redraw(true)")
        until(page, f"!{rate}.needs")
    page.evaluate("window.pitwallRun.view.setZoom({ min: 20, max: 20 + 1e-12, axis: 'step' })")
    zoom = page.evaluate("window.pitwallRun.view.zoom")
    assert zoom["max"] - zoom["min"] == pytest.approx(1)
    until(page, f"!{rate}.needs")


@pytest.mark.proof
def test_a_smoothed_tail_of_zeros_is_drawn_on_a_log_axis(page: Page, live_console: LiveConsole) -> None:
    """One value and then zeros: smoothed, they halve towards 1e-300, and uPlot's ticks of such a log axis never end."""
    reporter = start(live_console)
    values = [0.02] + [0.0] * 399
    name = "policy/clip_fraction"
    reporter.post([events.metric({name: y}, attempt=1, step=i + 1, t=NOW_NS) for i, y in enumerate(values)])
    open_run(page, live_console, reporter.run, "charts")
    chart = f"document.querySelector('[data-metric=\"{name}\"] .chart').chart"
    until(page, f"{chart}?.uplot?.data[0].length === 400")

    page.locator('[data-panel="charts"]').get_by_label("Log y axis").check()

    until(page, f"!{chart}.needs && {chart}.view.isLog")
    low, high = page.evaluate(f"[{chart}.uplot.scales.y.min, {chart}.uplot.scales.y.max]")
    assert 1e-20 < low < high <= 0.1


def test_the_files_tab_says_what_was_removed_and_what_stays_on_the_cluster(
    page: Page, live_console: LiveConsole
) -> None:
    reporter = start(live_console, steps=1)

    def checkpoint(step: int, **meta: Any) -> events.Event:
        path = f"checkpoints/step-{step}"
        return events.artifact(
            f"checkpoint-{step}", artifact="checkpoint", path=path, attempt=1, step=step, size=2 << 20, meta=meta
        )

    reporter.post([checkpoint(1), checkpoint(2)])
    open_run(page, live_console, reporter.run, "files")
    rows = page.locator("[data-files] tr")
    expect(rows).to_contain_text(["only on the cluster", "only on the cluster"])

    reporter.post([checkpoint(3), checkpoint(1, removed=True)])

    expect(rows).to_contain_text(["removed", "only on the cluster", "only on the cluster"])


def test_the_address_keeps_tab_smoothing_and_zoom(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=30)
    open_run(page, live_console, reporter.run)
    page.get_by_role("navigation", name="Run").get_by_role("link", name="Charts").click()
    card = page.locator('[data-metric="reward/mean"] .u-over')
    box = card.bounding_box()
    assert box is not None
    page.locator('[data-panel="charts"] [data-smooth]').fill("0.9")
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"/charts\?.*zoom="))
    zoom = page.evaluate("window.pitwallRun.view.zoom")

    page.reload()
    until(page, "window.pitwallRun?.feed.socket")

    after = page.evaluate("window.pitwallRun.view")
    assert after["smoothing"]["strength"] == 0.9
    assert after["zoom"]["min"] == pytest.approx(zoom["min"], rel=1e-6)
    expect(page.locator('[data-panel="charts"]')).to_be_visible()
    page.locator('[data-metric="reward/mean"] .u-over').dblclick()
    assert page.evaluate("window.pitwallRun.view.zoom") is None


@pytest.mark.proof
def test_metrics_are_found_by_name_and_by_label(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    open_run(page, live_console, reporter.run, "charts")
    expect(page.locator("[data-metric]")).to_have_count(3)

    page.get_by_role("searchbox", name="Filter metrics").fill("step time")

    expect(page.locator("[data-metric]")).to_have_count(1)
    page.get_by_role("searchbox", name="Filter metrics").fill("nothing like it")
    expect(page.locator('[data-field="charts-empty"]')).to_contain_text("No metric matches")


def test_the_timeline_draws_zooms_and_follows(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=4)
    open_run(page, live_console, reporter.run, "timeline")
    until(page, "window.pitwallRun.store.lanes.steps.size === 4")
    canvas = page.locator('[data-canvas="lanes"]')
    timeline = "document.querySelector('[data-canvas=lanes]').timeline"
    until(page, f"{timeline}.painter.needed({timeline}.lanes.sorted) > 100")
    rollout = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--phase-rollout').trim()")
    until(page, f"({COLORS})().includes('{rollout}')")
    expect(page.locator("[data-selection-rows]")).to_contain_text("Rollout")

    whole = page.evaluate(f"{timeline}.view.to - {timeline}.view.from")
    canvas.hover(position={"x": 500, "y": 20})
    page.mouse.wheel(0, -400)
    until(page, f"{timeline}.view.to - {timeline}.view.from < {whole * 0.8}")
    expect(page.locator('[data-field="tip"]')).to_contain_text("driver")
    canvas.focus()
    page.keyboard.press("0")
    until(page, f"{timeline}.window === null")

    reporter.steps(1)
    until(page, "window.pitwallRun.store.lanes.steps.size === 5")
    page.get_by_text("Spans on the screen as a table").click()
    expect(page.locator("[data-span-rows] tr").first).to_contain_text("driver")


COLORS = """() => {
  const canvas = document.querySelector('[data-canvas=lanes]');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let i = 0; i < data.length; i += 4) {
    found.add('#' + [data[i], data[i + 1], data[i + 2]].map((part) => part.toString(16).padStart(2, '0')).join(''));
  }
  return [...found];
}"""


def test_the_log_is_searched_line_by_line_and_followed(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=20)
    open_run(page, live_console, reporter.run, "logs")
    expect(page.locator(".run-log-line").last).to_contain_text("step 20")
    expect(page.locator(".run-log-line a.num").last).to_have_text("60")
    expect(page.locator('[data-field="log-count"]')).to_have_text("60 lines")

    page.get_by_role("searchbox", name="Search the log").fill("needle")

    expect(page.locator('[data-field="log-hits"]')).to_have_text("4 of 4")
    expect(page.locator(".run-log-line.is-hit")).to_contain_text("needle 20")
    page.get_by_role("button", name="Previous match").click()
    expect(page.locator(".run-log-line.is-hit")).to_contain_text("needle 15")
    page.locator("[data-log-stream]").select_option("policy-1")
    expect(page.locator('[data-field="log-hits"]')).to_have_text("no match")
    reporter.steps(1)
    expect(page.locator(".run-log-line").last).to_contain_text("[rank 1] step 21")
    assert page.locator(".run-log-line").count() == 21


def test_the_address_of_the_logs_shows_the_first_error_and_the_kinds_of_lines(
    page: Page, live_console: LiveConsole
) -> None:
    reporter = start(live_console, steps=1)
    lines = ["WARNING: the tokenizer has no padding token", "ValueError: the reward of sample 3 is missing"]
    failed = events.log(lines, attempt=1, role="policy", rank=1, stream="stderr", step=1)
    long = events.log([f"hay {i}" for i in range(80)], attempt=1, role="driver")
    reporter.post([long, events.log(["rank 0 waits"], attempt=1, role="policy", rank=0), failed])
    cause = {"side": "trainer", "role": "policy", "rank": 1, "step": 1, "text": "It failed."}
    reporter.terminal_event("failed", cause=cause)

    open_run(page, live_console, reporter.run, "logs")

    findings = page.locator("#log-findings")
    expect(findings).to_contain_text("the reward of sample 3 is missing")
    expect(findings).to_contain_text("the tokenizer has no padding token")
    expect(page.locator('[data-log="follow"]')).to_have_attribute("aria-pressed", "true")
    until(
        page,
        "(({ scrollTop: top, clientHeight: seen, scrollHeight: all }) => all > seen && top + seen > all - 2)"
        "(document.querySelector('[data-log-view]'))",
    )  # the findings took its height, not its newest lines
    page.locator("[data-log-stream]").select_option("policy, all ranks")
    shown = page.locator(".run-log-line")
    expect(shown).to_have_count(4)
    expect(shown.filter(has_text="rank 0 waits")).to_contain_text("policy 0")
    expect(shown.filter(has_text="padding token")).to_contain_text("policy 1")
    href = page.get_by_role("link", name="Download").get_attribute("href")
    assert href is not None
    assert href.endswith("log.txt?role=policy")


@pytest.mark.proof
def test_a_link_to_a_log_line_leads_there(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console)
    reporter.steps(300, at_once=50)
    open_run(page, live_console, reporter.run, "logs")
    expect(page.locator(".run-log-line").last).to_contain_text("step 300")
    page.locator("[data-log-view]").evaluate("(node) => { node.scrollTop = 3000; }")
    expect(page.locator('[data-log="follow"]')).to_have_attribute("aria-pressed", "false")
    cursor = page.locator(".run-log-line").nth(40).get_attribute("data-cursor")
    line = page.locator(f'[data-cursor="{cursor}"]')
    text = line.inner_text()
    line.locator(f'[href="?line={cursor}"]').click()

    page.reload()

    expect(page.locator(".run-log-line.is-target")).to_be_in_viewport()
    assert page.locator(".run-log-line.is-target").inner_text() == text
    assert page.locator(".run-log-line").count() < 150, "lines out of sight are not in the page"


def test_a_moment_leads_to_its_log_lines_and_a_line_to_the_timeline(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console)
    reporter.steps(300, at_once=50)
    chunk = LogChunk.objects.filter(run=reporter.run, text__contains="step 151 ").earliest("pk")
    moment = reporter.clock - 60 * 10**9
    LogChunk.objects.filter(run=reporter.run, pk__lt=chunk.pk).update(at=datetime.fromtimestamp(0, UTC))
    LogChunk.objects.filter(run=reporter.run, pk__gte=chunk.pk).update(at=datetime.fromtimestamp(moment / 1e9, UTC))

    page.goto(f"{live_console.url}/runs/{reporter.run.pk}/logs?at={moment - 10**6}")

    marked = page.locator(".run-log-line.is-target")
    expect(marked).to_contain_text("step 151 of the driver")
    expect(marked).to_be_in_viewport()
    expect(page.locator('[data-log="follow"]')).to_have_attribute("aria-pressed", "false")
    expect(page).to_have_url(re.compile(r"/logs\?((?!at=).)*line=((?!at=).)*$"))
    marked.get_by_role("link", name=re.compile(":")).click()
    expect(page.locator('.run-tabs [aria-current="page"]')).to_have_text("Timeline")
    until(page, f"window.pitwallRun && Math.abs({WINDOW}.to - {WINDOW}.from - 2.2) < 0.01")


@pytest.mark.proof
def test_a_sample_leads_to_its_step_on_the_timeline(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=20)
    open_run(page, live_console, reporter.run, "samples")
    page.locator("[name=step]").fill("7")
    row = page.locator("[data-samples] tr").first
    expect(row).to_contain_text("Step 7: what is")
    row.click()
    page.get_by_role("link", name="The step on the timeline").click()
    known = "window.pitwallRun?.store.lanes.steps.get(7)"
    until(page, f"{known} && {WINDOW}.to - {WINDOW}.from < 1.2")  # a step of 0.95 s and a little around it
    steps = page.evaluate("[...window.pitwallRun.store.lanes.steps.get(7)]")
    seen = page.evaluate(WINDOW)
    assert seen["from"] < steps[0] < steps[1] < seen["to"]


def test_new_samples_are_announced_and_shown_on_demand(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=3)
    open_run(page, live_console, reporter.run, "samples")
    rows = page.locator("[data-samples] tr")
    expect(rows).to_have_count(12)

    reporter.steps(1)

    page.get_by_role("button", name="Show 4 new").click()
    expect(rows).to_have_count(16)
    rows.first.click()
    expect(page.locator(".run-sample-full")).to_contain_text("math")
    page.get_by_role("spinbutton", name="Step").fill("2")
    expect(rows).to_have_count(4)
    page.get_by_label("By group").check()
    expect(page.locator(".run-group-row")).to_have_count(2)


def test_samples_are_filtered_by_reward_and_reviewed_one_after_the_other(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=3)
    kept = Sample.objects.filter(run=reporter.run)
    kept.filter(step=3).update(completion="It is 2", tokens=3, token_logprobs="[[6,-0.01],[1,-5]]")
    right = kept.filter(reward=1).count()
    open_run(page, live_console, reporter.run, "samples")
    rows = page.locator("tr[data-sample]")
    expect(rows).to_have_count(12)
    expect(page.locator("[data-sample-plot] circle")).to_have_count(12)

    page.locator("[data-sample-bins] button").last.click()

    expect(rows).to_have_count(right)
    expect(page).to_have_url(re.compile(r"reward=0\.95\.\."))
    page.locator("[data-sample-chips] button").click()
    expect(rows).to_have_count(12)
    page.get_by_role("button", name="Review", exact=True).click()
    opened = page.locator(".run-sample-full")
    expect(opened.locator('.run-token[data-level="4"]').first).to_have_text("2")
    page.keyboard.press("d")
    expect(rows.first.locator('[title="1 thumbs down"]')).to_be_visible()
    expect(rows.nth(1).get_by_role("button").first).to_have_attribute("aria-expanded", "true")  # on to the next one
    note = opened.get_by_label("A note on this sample")
    note.fill("guessed")
    note.press("Enter")
    expect(opened.locator(".run-review")).to_contain_text("guessed")
    assert list(SampleReview.objects.order_by("pk").values_list("verdict", "note")) == [("down", ""), ("", "guessed")]


def test_a_chart_of_the_overview_is_as_large_as_the_window_and_ends_with_the_run(
    page: Page, live_console: LiveConsole
) -> None:
    reporter = start(live_console, steps=6)
    open_run(page, live_console, reporter.run)
    wait_for_steps(page, 6)
    end = "document.querySelector('dialog[data-dialog=chart] .chart').chart?.uplot?.scales.x.max"
    page.locator('[data-plan="reward"]').focus()
    page.keyboard.press("f")
    until(page, f"{end} === 100")  # that is how many steps are planned

    reporter.terminal_event("stopped", cause={"side": "user", "text": "It was stopped."})

    until(page, f"{end} === 6")
    large = page.get_by_role("dialog", name="Reward")
    with page.expect_download() as saved:
        large.get_by_role("button", name="SVG").click()
    assert "</svg>" in saved.value.path().read_text()
    page.keyboard.press("Escape")
    page.locator('[data-panel="overview"]').get_by_label("Log y axis").check()
    until(page, "document.querySelector('[data-plan=reward]').chart.uplot.scales.y.distr === 3")
    page.reload()
    until(page, "document.querySelector('[data-plan=reward]').chart?.uplot?.scales.x.max === 6")


@pytest.mark.proof
def test_the_theme_changes_the_canvases_too(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=6)
    open_run(page, live_console, reporter.run)
    wait_for_steps(page, 6)
    drawn = "[...document.querySelectorAll('[data-canvas=steps], .u-wrap canvas')].map((one) => one.toDataURL()).join()"
    page.wait_for_timeout(200)
    before = page.evaluate(drawn)
    theme = page.evaluate("document.documentElement.dataset.bsTheme")

    page.keyboard.press("Alt+m")

    until(page, f"document.documentElement.dataset.bsTheme !== '{theme}'")
    until(page, "(before) => (" + drawn + ") !== before", before)


@pytest.mark.proof
def test_a_queued_run_says_its_place_and_why_it_waits(page: Page, live_console: LiveConsole) -> None:
    run = start(live_console, state="queued", wait_reason="It needs 4 CPUs; 1 of 8 is free.").run
    open_run(page, live_console, run)

    notice = page.locator('[data-field="wait"]')
    expect(notice).to_contain_text(re.compile(r"Queued, place \d+\. It needs 4 CPUs; 1 of 8 is free\."))
    expect(page.locator('[data-action="stop"]')).to_have_text("Cancel")
    page.locator('[data-action="stop"]').click()
    expect(page.get_by_role("dialog")).to_contain_text("does not start")
    page.get_by_role("button", name="Cancel run").click()
    expect(page.locator('[data-field="state"]')).to_have_text("stopped")


def test_a_run_that_fails_shows_its_cause_at_once(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    open_run(page, live_console, reporter.run)
    expect(page.locator('[data-field="state"]')).to_have_text("running")

    reporter.terminal_event(
        "failed",
        cause={"side": "trainer", "role": "policy", "rank": 1, "step": 3, "text": "Out of memory.", "log_line": "OOM"},
    )

    expect(page.locator('[data-field="state"]')).to_have_text("failed")
    expect(page.locator('[data-field="cause"]')).to_contain_text("Trainer, policy 1, step 3: Out of memory. OOM")
    expect(page.locator('[data-action="stop"]')).to_be_hidden()


def test_stopping_says_what_it_costs_and_then_does_it(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    open_run(page, live_console, reporter.run)

    page.locator('[data-action="stop"]').click()
    expect(page.get_by_role("dialog")).to_contain_text("saves a checkpoint first")
    page.get_by_role("button", name="Stop run").click()

    expect(page.locator('[data-field="state"]')).to_have_text("stopping")
    assert Attempt.objects.get(run=reporter.run).commands.get().verb == "stop"
    page.get_by_role("button", name="Undo").click()
    expect(page.locator('[data-field="state"]')).to_have_text("running")
    assert not Attempt.objects.get(run=reporter.run).commands.exists()


def test_a_run_is_renamed_in_place_and_back(page: Page, live_console: LiveConsole) -> None:
    run = start(live_console).run
    open_run(page, live_console, run)

    page.get_by_role("button", name="Rename the run").click()
    page.get_by_role("textbox", name="Name of the run").fill("a better name")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text("a better name")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(run.name)


def test_a_ready_model_can_be_downloaded_and_asked(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    make_artifact(reporter.run)
    finish(run_id=reporter.run.pk, attempt=1, state="finished", cause={}, cleanup={}, now=NOW)
    open_run(page, live_console, reporter.run)

    expect(page.get_by_role("link", name="Download model")).to_be_visible()
    form = page.locator('[data-tryit="overview"]')
    form.get_by_role("textbox").fill("What is 1 plus 1?")
    form.get_by_role("button", name="Ask").click()
    expect(form.locator('[data-part="state"]')).to_contain_text(re.compile("waiting for"))


def test_the_overview_fits_the_window(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=6)
    open_run(page, live_console, reporter.run)
    wait_for_steps(page, 6)
    expect(page.locator("[data-latest] tr")).to_have_count(4)

    size = "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
    wait_until(
        lambda: page.evaluate(size) == [900, 1440], 30, what=lambda: f"{page.evaluate(size)} did not become [900, 1440]"
    )
