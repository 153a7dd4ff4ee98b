"""The page Compare in a browser, on a real console: it grows, keeps its view in the address, and is led to by keys."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobs.models import Artifact, Capture, Run
from jobs.runs.notes import WRITTEN
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import NAMELESS, until
from tests.rows import make_run

pytestmark = pytest.mark.browser


READY = "Boolean(window.pitwallCompare)"
AXE = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"
FINDINGS = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"], preload: false });
  const heavy = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return heavy.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 160)}`));
}"""


def start(console: LiveConsole, name: str, *, steps: int, color: int, state: str = "running", **knobs: Any) -> Reporter:
    spec = {"name": name, "knobs": {"train.num_steps": 100, "eval.every_steps": 0, **knobs}}
    run = make_run(console.project, state=state, spec=spec, user=console.user, color=color)
    reporter = Reporter(console=console, run=run)
    reporter.steps(steps, at_once=steps)
    return reporter


def points(run: Run, metric: str = "reward/mean") -> str:
    return f"(window.pitwallCompare?.store.of('{run.pk}|{metric}')[0]?.x ?? []).length"


def lines(metric: str = "reward/mean") -> str:
    return f"document.querySelector('[data-metric=\"{metric}\"] .chart').chart?.shown?.lines ?? []"


def test_the_page_follows_its_runs_and_its_address_holds_the_view(page: Page, live_console: LiveConsole) -> None:
    first = start(live_console, "grpo-a", steps=15, color=2)
    second = start(live_console, "grpo-b", steps=14, color=12, **{"optimizer.learning_rate": 1e-5})
    page.set_viewport_size({"width": 1440, "height": 600})
    page.goto(f"{live_console.url}/compare?runs={first.run.pk},{second.run.pk}")
    until(page, f"{points(first.run)} === 15 && {points(second.run)} === 14")
    page.evaluate("window.isSamePage = true; window.scrollTo(0, 40)")

    # It grows without a new page, and without moving.
    second.steps(3, at_once=3)
    until(page, f"{points(second.run)} === 17")
    card = page.locator(f'.cmp-card[data-run="{second.run.pk}"]')
    expect(card).to_contain_text("17 / 100")
    expect(page.locator(".cmp-verdict")).to_contain_text("No difference shown")
    assert page.evaluate("window.scrollY") == 40

    # A color and a dash of its own for each run, the base on top and thicker.
    until(page, f"({lines()}).length === 2")
    drawn = page.evaluate(f"({lines()}).map((line) => [line.label, line.color, Boolean(line.dash), line.width ?? 0])")
    assert drawn == [["b", "--run-2", True, 0], ["a", "--run-2", False, 2.2]]

    # Another base, by key; one hidden, by its eye; both are in the address and go back with the browser.
    card.focus()
    page.keyboard.press("b")
    expect(page.locator(".cmp-card.is-base")).to_contain_text("grpo-b")
    page.get_by_role("link", name="Hide grpo-a").click()
    until(page, f"({lines()}).length === 1")
    expect(page).to_have_url(re.compile(f"base={second.run.pk}"))
    expect(page).to_have_url(re.compile(f"hide={first.run.pk}"))
    page.go_back()
    until(page, f"({lines()}).length === 2")
    expect(page).not_to_have_url(re.compile("hide="))

    # Smoothing, zoom, x axis and the charts chosen stay over a reload.
    page.evaluate("window.pitwallCompare.view.setZoom({ min: 3, max: 9, axis: 'step' })")
    page.locator("[data-smooth]").fill("0.3")
    page.get_by_text("Metrics", exact=True).click()
    page.locator('[data-metric-chooser] input[value="policy/entropy"]').check()
    expect(page.locator('[data-compare-charts] [data-metric="policy/entropy"]')).to_have_count(1)
    until(page, "location.search.includes('zoom=') && location.search.includes('&m=')")
    page.reload()
    until(page, "window.pitwallCompare?.view.zoom?.max === 9")
    assert page.evaluate("window.pitwallCompare.view.smoothing.strength") == 0.3
    expect(page.locator('[data-compare-charts] [data-metric="policy/entropy"]')).to_have_count(1)
    page.locator("[data-axis]").select_option("time")
    until(page, "window.pitwallCompare.view.axis === 'time' && location.search.includes('x=time')")
    until(page, f"window.pitwallCompare.store.of('{first.run.pk}|reward/mean')[0]?.x.at(-1) > 14.2")  # 15 × 0.95 s
    expect(page).not_to_have_url(re.compile("zoom="))  # steps are no seconds

    # The next difference of the settings, by key.
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.innerText").startswith("optimizer.learning_rate")
    assert page.evaluate(NAMELESS) == []


def test_a_chart_is_asked_for_a_point_and_takes_notes(page: Page, live_console: LiveConsole) -> None:
    first = start(live_console, "one", steps=12, color=0)
    second = start(live_console, "two", steps=9, color=1)
    Artifact.objects.create(run=second.run, attempt=1, name="c", type="checkpoint", path="c", step=6)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{live_console.url}/compare?runs={first.run.pk},{second.run.pk}&tab=charts&q=e")
    until(page, f"{points(second.run, 'policy/entropy')} === 9")
    chart = page.locator('[data-metric="policy/entropy"]')
    over = chart.locator(".u-over")
    heads = page.locator("[data-compare-charts] .card-value")
    at = "document.querySelector('[data-metric=\"policy/entropy\"] .chart').chart.uplot.valToPos"

    # The crosshair of one chart tells the values of all, and takes them away with it.
    over.hover(position={"x": page.evaluate(f"{at}(6, 'x')"), "y": 30})
    seen = "[...document.querySelectorAll('[data-compare-charts] .uplot')].map((one) => one.closest('[data-metric]'))"
    until(page, f"({seen}).length > 2 && ({seen}).every((card) => card.querySelector('.card-value').textContent)")
    second.steps(1, at_once=1)
    until(page, f"{points(second.run, 'policy/entropy')} === 10")
    expect(chart.locator(".card-value")).not_to_be_empty()  # new points do not take it away
    page.mouse.move(5, 5)
    expect(heads.first).to_have_text("")

    # A click opens the step of each run; what is not that far says so; back closes.
    over.click(position={"x": page.evaluate(f"{at}(11, 'x')"), "y": 30})
    panel = page.locator("[data-point-panel]")
    expect(panel.locator("tbody tr")).to_have_text([re.compile(r"one baseline\s*1\.00\s*11"), re.compile("not there")])
    expect(panel.locator("a").first).to_have_attribute("href", f"/runs/{first.run.pk}/charts?point=11")
    expect(page).to_have_url(re.compile("point=11,policy/entropy"))
    assert page.evaluate(NAMELESS) == []
    page.keyboard.press("ArrowLeft")
    expect(panel.locator("[data-panel-place]")).to_have_text("step 10")
    page.reload()
    expect(panel.locator("tbody tr")).to_have_count(2)
    page.go_back()
    expect(panel).to_be_hidden()
    expect(page).not_to_have_url(re.compile("point="))

    # Marks on another axis, named in the legend; a click on the x axis takes a note of a run at its own step.
    page.locator("[data-axis]").select_option("time")
    marks = "window.pitwallCompare.view.marks"
    of_step_six = f"{marks}.find(({{ type, color }}) => type === 'checkpoint' && color === '--run-1')"
    until(page, f"Math.abs(({of_step_six})?.x - 5.7) < 0.1")  # 6 x 0.95 s
    expect(page.locator("[data-checkpoint-key]")).to_be_visible()
    expect(page.locator("[data-note-key]")).to_be_hidden()
    until(page, f"{at}(3, 'x') > 0 && {points(second.run, 'policy/entropy')} === 10")
    chart.locator(".u-axis").first.click(position={"x": page.evaluate(f"{at}(3.8, 'x')"), "y": 8})
    page.get_by_label("Run", exact=True).select_option("two")
    expect(page.get_by_label("Step", exact=True)).to_have_value("4")  # 4 x 0.95 s
    page.get_by_label("Note", exact=True).fill("looks odd")
    page.get_by_role("button", name="Write the note").click()
    until(page, f"{marks}.some(({{ type, text }}) => type === 'note' && text.startsWith('two: looks odd'))")
    expect(page.locator("[data-note-key]")).to_be_visible()


@pytest.mark.proof
def test_the_other_tabs(page: Page, live_console: LiveConsole) -> None:
    first = start(live_console, "one", steps=12, color=0)
    second = start(live_console, "two", steps=12, color=1)
    about = {"attempt": 1, "verb": WRITTEN, "step": 6, "text": "looks odd", "at": timezone.now()}
    first.run.events.create(actor=live_console.user, **about)
    address = f"{live_console.url}/compare?runs={first.run.pk},{second.run.pk}"

    page.goto(f"{address}&tab=samples")
    expect(page.locator(".cmp-prompt")).to_have_count(4)
    expect(page.locator(".cmp-prompt").first.locator(".cmp-answer")).to_have_count(2)
    expect(page.locator("[data-sample-step]")).to_have_value("12")
    until(page, READY)
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-sample-step]")).to_have_value("11")
    expect(page).to_have_url(re.compile("at=11"))

    page.goto(f"{address}&tab=charts")
    until(page, f"{points(second.run, 'policy/entropy')} === 12")
    page.locator("[data-chart-search]").fill("entropy")
    expect(page.locator("[data-compare-charts] [data-metric]")).to_have_count(1)
    page.locator('[data-metric="policy/entropy"]').focus()
    page.keyboard.press("f")
    expect(page.locator('dialog[data-dialog="chart"]')).to_be_visible()
    until(page, "document.querySelector('[data-full-body]').chart.shown?.lines.length === 2")
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert saved.value.path().read_text().startswith("step,two,two (smoothed 0.6),one,one (smoothed 0.6)\n")
    page.keyboard.press("Escape")

    box = page.locator('[data-metric="policy/entropy"] .chart').bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("[data-tip]")).to_contain_text(re.compile(r"step \d+\s*one\s*1\.00\s*two\s*1\.00"))

    marks = "document.querySelector('[data-metric=\"policy/entropy\"] .chart').chart.view.marks"
    assert page.evaluate(f"{marks}.filter(({{ type }}) => type === 'note').map(({{ x, color }}) => [x, color])") == [
        [6, "--run-0"]
    ]
    at = page.evaluate(f"{marks.removesuffix('.view.marks')}.uplot.valToPos(6, 'x')")
    over = page.locator('[data-metric="policy/entropy"] .u-over')
    over.hover(position={"x": at, "y": 10})
    expect(over).to_have_attribute("title", f"one: looks odd ({live_console.user.get_username()})")

    page.goto(f"{address}&tab=table")
    page.locator('[data-table-form] [name="step"]').fill("5")
    page.keyboard.press("Enter")
    expect(page.locator(".cmp-table thead")).to_contain_text("At step 5")
    expect(page).to_have_url(re.compile(f"runs={first.run.pk}"))

    page.set_viewport_size({"width": 390, "height": 844})
    for tab in ("verdict", "charts", "table", "config", "timing", "samples"):
        page.goto(f"{address}&tab={tab}")
        until(page, "document.documentElement.scrollWidth <= 390")
        assert page.evaluate(NAMELESS) == [], tab


def test_runs_are_chosen_on_the_list_or_found_by_name(page: Page, live_console: LiveConsole) -> None:
    names = ("chosen-x", "chosen-y", "added-z")
    runs = [start(live_console, name, steps=1, color=i).run for i, name in enumerate(names)]
    page.goto(f"{live_console.url}/runs?q=chosen")
    for run in runs[:2]:
        page.locator(f'input[value="{run.pk}"]').check()
    expect(page.locator("[data-act=compare]")).to_have_text("Compare 2 runs c")
    page.evaluate("document.activeElement.blur()")

    page.keyboard.press("c")

    expect(page.locator("h1")).to_have_text("Compare 2 runs")
    until(page, READY)
    page.get_by_role("button", name="Add run").click()
    page.locator("[data-add-search]").fill("added")
    expect(page.locator("[data-add-found] button")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Compare 3 runs")
    until(page, READY)
    page.get_by_role("link", name="Take chosen-y out").click()
    expect(page.locator("h1")).to_have_text("Compare 2 runs")
    expect(page).not_to_have_url(re.compile(runs[1].pk))
    for run in (runs[0], runs[2]):
        expect(page).to_have_url(re.compile(run.pk))


@pytest.mark.proof
def test_captures_are_followed_side_by_side(page: Page, live_console: LiveConsole) -> None:
    first = start(live_console, "trace-a", steps=3, color=0)
    second = start(live_console, "trace-b", steps=3, color=1)
    page.goto(f"{live_console.url}/compare?runs={first.run.pk},{second.run.pk}&tab=traces")
    until(page, READY)
    way = page.get_by_role("link", name="Profile tab of")
    expect(way.last).to_have_attribute("href", f"/runs/{second.run.pk}/profile")

    rows = [
        Capture.objects.create(run=one.run, attempt=1, tool="torch", first_step=step, num_steps=2)
        for one, step in ((first, 4), (second, 5))
    ]
    for one, row in zip((first, second), rows, strict=True):
        one.post([events.capture(row.pk, "recording", attempt=1, step=row.first_step)])
    second.post([events.capture(rows[1].pk, "failed", attempt=1, text="The disk is full.")])

    together = page.locator(".cmp-trace-row")
    expect(together).to_have_count(1)
    expect(together.locator("h2")).to_have_text("Steps 4–6")
    expect(together.locator(f'[data-capture="{rows[0].pk}"] .state')).to_have_text("recording")
    expect(together.locator(f'[data-capture="{rows[1].pk}"]')).to_contain_text("The disk is full.")
    expect(page.locator('.cmp-tabs [aria-current="page"]')).to_have_text("Traces 2")
    assert page.evaluate(NAMELESS) == []


def test_the_report_opens_without_network(page: Page, live_console: LiveConsole, tmp_path: Path) -> None:
    runs = [start(live_console, name, steps=14, color=2).run for name in ("grpo-a", "grpo-b")]
    page.goto(f"{live_console.url}/compare?runs={runs[0].pk},{runs[1].pk}")
    until(page, READY)
    page.locator("summary", has_text="Export").click()
    with page.expect_download() as download:
        page.locator("a[data-report]").click()
    file = tmp_path / "comparison.html"
    download.value.save_as(file)
    page.goto("about:blank")  # the page of the comparison asks for what changes
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.context.set_offline(True)
    page.goto(file.as_uri())

    expect(page.locator("h2").first).to_have_text("Verdict")
    expect(page.locator('svg[aria-label="Reward"] .line')).to_have_count(2)
    box = page.locator('svg[aria-label="Reward"] .line').first.bounding_box()
    assert box is not None
    assert box["width"] > 100
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert asked == [file.as_uri()]
    if AXE.is_file():
        page.evaluate(AXE.read_text())
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            assert page.evaluate(FINDINGS) == [], theme


def test_the_table_is_scrolled_with_keys(page: Page, live_console: LiveConsole) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is missing: make install-dev, with npm")
    rates = {"grpo-a": 1e-5, "grpo-b": 1e-5, "grpo-c": 3e-6, "grpo-d": 3e-6}
    runs = [
        start(live_console, name, steps=8, color=2, **{"optimizer.learning_rate": rate}).run.pk
        for name, rate in rates.items()
    ]
    page.set_viewport_size({"width": 1000, "height": 500})
    page.goto(f"{live_console.url}/compare?runs={','.join(runs)}&group=optimizer.learning_rate&tab=table")
    until(page, READY)
    notes = "[...document.querySelectorAll('.cmp-table td small')].filter((note) => note.textContent.includes('–'))"
    assert page.evaluate(f"{notes}.length") > 6
    assert page.evaluate(f"{notes}.filter((note) => note.scrollWidth > note.clientWidth).length") == 0

    page.evaluate(AXE.read_text())

    assert page.evaluate("document.querySelector('.cmp-table-wrap').scrollHeight > 260")
    assert page.evaluate(FINDINGS) == []
