"""The planner beside New run's form in a browser: verdict, advice, layouts, hardware, a pasted config, a probe."""

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from jobs.catalog.model import find_model
from jobs.models import Run
from tests.bench.panel import FOLLOWED
from tests.console.live_console import LiveConsole
from tests.console.window import NAMELESS, until

pytestmark = pytest.mark.browser

RECIPE = "/runs/new?recipe=verl-grpo-qwen3-8b"
ENDS = """rows => rows.map((row) => Math.max(...[...row.querySelectorAll('.term')]
  .map(({ x, width }) => x.baseVal.value + width.baseVal.value)))"""


@pytest.fixture(autouse=True)
def _empty(live_console: LiveConsole) -> None:
    Run.objects.filter(project=live_console.project).delete()


def opened(page: Page, console: LiveConsole, hardware: str = "h200-sxm", more: str = "") -> Page:
    """Show the form of a known run, planned for a node of other hardware than the cluster's, of which there is none."""
    where = f"&accelerator={hardware}&nodes=1&devices_per_node=8" if hardware else ""
    page.goto(f"{console.url}{RECIPE}{where}{more}")
    expect(verdict(page)).not_to_have_text("not planned yet")
    return page


def verdict(page: Page) -> Locator:
    return page.locator(".plan-verdict .state")


def advised(page: Page, change: str = "") -> Locator:
    return page.locator(f"[data-advice-place]:not(.is-stale) [data-advice{f'={json.dumps(change)}' if change else ''}]")


def test_the_verdict_names_what_binds_and_follows_a_knob(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console)
    expect(verdict(page)).to_have_text("Fits")
    expect(page.locator("#plan-title")).to_contain_text(
        re.compile(r"^\w[\w -]* peaks at [\d.]+ of 139\.8 GiB; .+ GiB of it\.$")
    )
    expect(page.locator(".memory-row[data-binding]")).to_have_count(1)
    before = page.locator(".memory-row[data-binding] .memory-needed").text_content()

    page.fill('[name="knobs.rollout.gpu_memory_fraction"]', "0.95")

    expect(verdict(page)).not_to_have_text("Fits")
    assert page.locator(".memory-row[data-binding] .memory-needed").text_content() != before
    assert page.evaluate(NAMELESS) == []


@pytest.mark.proof
def test_bars_add_up_share_one_scale_and_open_by_role(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console)
    rows = page.locator(".memory-row")
    needed = [float(text) for text in rows.locator(".memory-needed").all_text_contents()]
    ends = rows.evaluate_all(ENDS)
    scales = [end / value for end, value in zip(ends, needed, strict=True)]
    assert max(scales) / min(scales) == pytest.approx(1, abs=0.03)

    binding = page.locator(".memory-row[data-binding]")
    binding.locator("summary").focus()
    page.keyboard.press("Enter")
    table = binding.locator(".role-table")
    expect(table).to_be_visible()
    sums = [float(text) for text in table.locator("td:last-child").all_text_contents()]
    assert sum(sums) == pytest.approx(float(binding.locator(".memory-needed").text_content() or 0), abs=0.2)

    page.fill('[name="knobs.train.seed"]', "7")
    expect(page.locator("[data-plan-busy]")).to_contain_text("planned in")
    expect(page.locator(".memory-row[data-binding] .role-table")).to_be_visible()  # what was open stays open


def test_the_panel_follows_each_key_and_the_last_one_wins(page: Page, live_console: LiveConsole) -> None:
    """How long it takes is measured by tests.bench.panel."""
    opened(page, live_console)
    needed = page.locator('.memory-row[data-keep$=" rollout"] .memory-needed')
    told = {}
    for fraction in ("0.41", "0.61"):
        page.evaluate(FOLLOWED, fraction)  # ends with the first frame that shows other bars
        told[fraction] = needed.text_content()
    assert told["0.41"] != told["0.61"]

    share = page.locator('[name="knobs.rollout.gpu_memory_fraction"]')
    for fraction in ("0.5", "0.55", "0.6", "0.41"):
        share.fill(fraction)

    expect(needed).to_have_text(told["0.41"] or "")
    expect(page.locator("[data-plan-busy]")).to_contain_text("planned in")
    expect(needed).to_have_text(told["0.41"] or "")


@pytest.mark.proof
def test_advice_is_applied_by_one_click_and_undone(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console, "a100-40-sxm")
    expect(verdict(page)).to_have_text("Does not fit")
    expect(page.locator("#advice-title")).to_have_text("What would make it fit")
    expect(advised(page).first).to_contain_text(re.compile(r"Peak [\d.]+ GiB → [\d.]+ GiB of 39\.4 GiB"))

    advised(page).first.get_by_role("button").click()

    expect(verdict(page)).not_to_have_text("Does not fit")
    expect(page.locator("[data-num-changes]")).not_to_have_text("0 changes")
    page.locator("[data-undo]").click()
    expect(verdict(page)).to_have_text("Does not fit")
    expect(page.locator("[data-num-changes]")).to_have_text("0 changes")


@pytest.mark.proof
def test_what_moves_the_plan_most_is_tried_by_one_click(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console)
    largest_terms = page.locator("[data-advice-place]:not(.is-stale) .plan-terms")
    expect(largest_terms.locator("li[data-term]")).to_have_count(6)
    tried = largest_terms.locator("li[data-term]:has(button)").first
    key = tried.get_attribute("data-term")
    change = tried.get_by_role("button")
    expect(change).to_have_accessible_name(re.compile("^Try: "))
    before = page.locator(".memory-row[data-binding]").inner_text()

    change.click()

    expect(page.locator("[data-num-changes]")).not_to_have_text("0 changes")
    expect(page.locator(".memory-row[data-binding]")).not_to_have_text(before)
    assert key
    page.locator("[data-undo]").click()
    expect(page.locator("[data-num-changes]")).to_have_text("0 changes")
    link = largest_terms.locator("[data-constant] a").first
    name = largest_terms.locator("[data-constant]").first.get_attribute("data-constant")
    link.click()
    expect(page.locator(f'[id="constant-{name}"]')).to_be_visible()
    expect(page.locator(f'[id="constant-{name}"]')).to_be_in_viewport()


@pytest.mark.proof
def test_in_a_narrow_window_the_plan_is_a_strip_that_opens_and_stays(page: Page, live_console: LiveConsole) -> None:
    page.set_viewport_size({"width": 800, "height": 900})
    opened(page, live_console, "a100-40-sxm")
    strip = page.locator("[data-plan-strip]")
    expect(strip).to_contain_text("Does not fit")
    expect(strip).to_contain_text(re.compile(r"Step time\s+\S+"))
    expect(strip).to_contain_text(re.compile(r"Device hours\s+\S+"))
    expect(page.locator(".memory-row").first).to_be_hidden()
    page.evaluate("window.scrollTo(0, 900)")
    expect(strip).to_be_in_viewport()

    strip.press("Enter")
    expect(page.locator(".memory-row").first).to_be_visible()
    expect(strip).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(page.locator(".memory-row").first).to_be_hidden()
    expect(strip).to_be_focused()
    for width in (390, 800, 1099):
        page.set_viewport_size({"width": width, "height": 900})
        until(page, "(width) => document.documentElement.scrollWidth === width", width)
    page.set_viewport_size({"width": 1100, "height": 900})
    expect(strip).to_be_hidden()
    expect(page.locator(".memory-row").first).to_be_visible()


def test_a_layout_is_found_and_taken_into_the_form(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console, "a100-40-sxm")
    expect(page.locator("[data-open-layouts]")).to_contain_text(re.compile(r"All layouts \([\d,]+\)"))
    page.locator("[data-open-layouts]").press("Enter")
    dialog = page.locator("#layouts-dialog")
    expect(dialog.locator("tbody tr").first).to_be_visible()
    expect(dialog.locator("[data-layouts-place] > p").first).to_contain_text(re.compile(r"[\d,]+ fit, [\d,]+ do not"))
    expect(dialog.locator(".rejected").first).to_contain_text(re.compile(r"^\s*[\d,]+ "))
    all_rows = dialog.locator("tbody tr:visible").count()
    dialog.locator("[data-layouts-search]").fill("checkpointing")
    until(
        page,
        "n => [...document.querySelectorAll('#layouts-dialog tbody tr')].filter(r => !r.hidden).length < n",
        all_rows,
    )
    assert page.evaluate(NAMELESS) == []
    dialog.locator("[data-layouts-search]").fill("")

    dialog.locator("tbody tr button").first.click()

    expect(dialog).to_be_hidden()
    expect(verdict(page)).not_to_have_text("Does not fit")
    expect(page.locator("[data-num-changes]")).not_to_have_text("0 changes")


@pytest.mark.proof
def test_other_hardware_is_planned_for_and_kept_in_the_address(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console, "")
    expect(page.locator("body")).to_contain_text("the recipe's hardware: the cluster has none to plan for")

    page.select_option('[name="plan.accelerator"]', "h100-sxm")

    expect(verdict(page)).to_have_text(re.compile("Fits|Does not fit"))
    expect(page.locator("[data-plan-launches]")).to_have_text(re.compile("the launch still uses the cluster"))
    expect(page.locator("[data-num-changes]")).to_have_text("0 changes")  # it is no change of the run
    expect(page).to_have_url(re.compile("accelerator=h100-sxm&nodes=1&devices_per_node=8"))
    page.fill('[name="plan.nodes"]', "5000")
    expect(page.locator("#e-plan")).to_contain_text("Use a whole number from 1 to 4,096")
    expect(page.locator("[data-verdict]")).not_to_contain_text("4,096")  # it is no part of the launch
    page.fill('[name="plan.nodes"]', "2")
    expect(page.locator("#e-plan")).to_be_empty()
    page.reload()
    expect(page.locator('[name="plan.nodes"]')).to_have_value("2")
    expect(page.locator('[name="plan.accelerator"]')).to_have_value("h100-sxm")
    page.locator("[data-draft-drop]").click() if page.locator("[data-draft-drop]").is_visible() else None
    page.fill('[name="plan.devices_per_node"]', "2")
    page.fill('[name="plan.nodes"]', "1")
    expect(page.locator("#plan-title")).to_contain_text("The run asks for 8 devices; there are 2 ×")


@pytest.mark.proof
def test_an_unknown_model_is_planned_by_its_pasted_config(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console)
    page.fill('[name="model.id.hub"]', "nobody/has-this-model")
    paste = page.locator('[data-open="config-dialog"]')
    expect(verdict(page)).to_have_text("Unknown")
    expect(paste).to_be_visible(timeout=120_000)

    paste.click()
    config = dict(find_model("qwen2.5-0.5b").config)
    page.fill("#config-text", json.dumps(config | {"hidden_size": "wide"}))
    page.locator("[data-config-now]").click()
    expect(page.locator("#config-errors")).to_contain_text("hidden_size")
    page.fill("#config-text", "{")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#config-errors")).to_contain_text("That is not JSON")
    page.fill("#config-text", json.dumps(config))
    page.locator("[data-config-now]").click()

    expect(page.locator("#config-dialog")).to_be_hidden()
    expect(verdict(page)).to_have_text("Fits")
    page.fill('[name="model.id.hub"]', "nobody/has-another")
    expect(verdict(page)).to_have_text("Unknown")  # a config is one model's


@pytest.mark.proof
def test_sizes_that_do_not_divide_are_told_beside_their_knob(page: Page, live_console: LiveConsole) -> None:
    opened(page, live_console)

    page.fill('[name="knobs.placement.rollout_tensor_parallel"]', "3")

    error = page.locator('[data-error-for="knobs.placement.rollout_tensor_parallel"]')
    expect(error).to_contain_text("Rollout tensor parallel")
    expect(verdict(page)).to_have_text("Unknown")


@pytest.mark.proof
def test_a_probe_is_launched_and_marked(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/runs/new")
    page.fill("[name=name]", "mine")
    page.locator("[data-probe]").click()
    page.wait_for_url(re.compile(r"/runs/r-\w+$"), timeout=200_000)

    run = Run.objects.get(project=live_console.project)
    assert (run.name, run.tags, run.num_steps) == ("mine probe", ["probe"], 4)
    knobs = {name: chosen["value"] for name, chosen in run.spec["knobs"].items()}
    assert knobs["rollout.ignore_eos"] is True
    assert knobs["checkpoint.every_steps"] == knobs["eval.every_steps"] == knobs["eval.num_prompts"] == 0
