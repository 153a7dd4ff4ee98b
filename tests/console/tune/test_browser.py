"""Sweeps in a browser, on a real console: set one up, launch it, watch it, compare its runs, stop it."""

import re

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Attempt, Run, Study
from jobs.runs import lifecycle
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import NAMELESS
from tests.jobs.sweeps.test_sweeps import runs_of
from tests.rows import NOW

pytestmark = pytest.mark.browser

RATE = "optimizer.learning_rate"
TRIAL_MS = 120_000  # starting the trial process on a busy machine


@pytest.fixture(autouse=True)
def _empty(live_console: LiveConsole) -> None:
    Run.objects.filter(project=live_console.project).delete()
    Study.objects.filter(project=live_console.project).delete()


def test_a_sweep_from_the_form_to_its_end(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/tune")
    expect(page.get_by_text("No sweep yet.")).to_be_visible()
    page.get_by_role("link", name="New sweep").click()
    section = page.locator("[data-sweep]")
    expect(page.locator("[data-launch-label]")).to_have_text("Launch the sweep")
    assert page.evaluate(NAMELESS) == []

    # a wrong value, at its field
    page.fill("[name=name]", "rates")
    page.fill('[name="sweep.knobs.0.id"]', RATE)
    expect(section.locator("[data-sweep-takes]").first).to_have_text(
        "Learning rate: a number from 0 to 1; the form has 3e-4"
    )
    page.fill('[name="sweep.knobs.0.values"]', "1e-4, 3e-4, hot")
    page.locator('[name="sweep.knobs.0.values"]').blur()
    expect(page.locator('[data-error-for="sweep.knobs.0.values"]')).to_have_text(
        "'hot' is not allowed for Learning rate. Use a number from 0 to 1."
    )
    page.fill('[name="sweep.knobs.0.values"]', "1e-4, 3e-4, 3e-3")
    section.locator("[data-sweep-add]").click()
    page.fill('[name="sweep.knobs.1.id"]', "train.seed")
    page.fill('[name="sweep.knobs.1.values"]', "0")
    page.fill('[name="sweep.max_concurrent"]', "2")

    # what it would launch, and the same elsewhere
    expect(page.locator("[data-launch-label]")).to_have_text("Launch 3 runs, 2 at once")
    expect(section.locator(".sweep-points tbody tr")).to_have_count(3)
    expect(section).to_contain_text("2 at once ask for 4 CPUs")
    expect(page.locator("[data-command-text]")).to_contain_text("manage.py sweep - --project")
    page.reload()  # the draft brings the sweep back
    expect(page.locator("[data-launch-label]")).to_have_text("Launch 3 runs, 2 at once")
    page.locator("[data-launch]").dblclick()
    page.wait_for_url(re.compile(r"/tune/s-\w+$"), timeout=TRIAL_MS)

    study = Study.objects.get(project=live_console.project)
    runs = runs_of(study)
    assert [run.study_values for run in runs] == [{RATE: v, "train.seed": 0} for v in (1e-4, 3e-4, 3e-3)]
    expect(page.locator("tr[data-run]")).to_have_count(3)
    expect(page.locator("[data-part=state] .state")).to_have_text("queued")

    # what happens shows by itself
    for run, length in zip(runs, (4, 8), strict=False):
        lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
        lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW)
        Reporter(console=live_console, run=run).steps(length, at_once=2)
    best = page.locator(f'tr[data-run="{runs[1].pk}"]')
    expect(best).to_contain_text("0.44")
    expect(best).to_have_attribute("data-best", "")
    expect(page.locator("[data-part=state]")).to_contain_text("2 running")
    expect(page.locator(".tune-chart canvas")).to_be_visible()
    expect(page.locator("[data-clone-best]")).to_have_attribute("href", f"/runs/new?from={runs[1].pk}")
    page.locator('select[data-pick="x"]').select_option("train.seed")
    expect(page.locator("[data-caption]")).to_contain_text("over Seed")

    # ranges: dragged along an axis, typed, kept in the address, followed by the table
    box = page.locator(".par-hit").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 14, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 14, box["y"] + box["height"] * 0.75, steps=3)
    page.mouse.up()
    expect(page.locator("[data-brushed-text]")).to_have_text("2 of 3 runs are in the ranges")
    expect(page.locator("tr[data-run].is-out")).to_have_attribute("data-run", runs[0].pk)
    expect(page.locator("tr[data-run].is-out")).to_have_css("opacity", "1")  # fainter words would be too faint to read
    page.get_by_label("Learning rate from").fill("2e-3")
    page.keyboard.press("Tab")
    expect(page.locator("[data-brushed-text]")).to_have_text("1 of 3 run is in the ranges")
    expect(page).to_have_url(re.compile("brush="))
    page.get_by_role("button", name="Clear the ranges").click()
    expect(page.locator("tr[data-run].is-out")).to_have_count(0)
    expect(page.locator(f'tr[data-run="{runs[2].pk}"] .state')).to_have_text("queued")
    assert page.evaluate(NAMELESS) == []

    # how many at once, then none
    page.fill("#at-once", "none")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("#at-once-error")).to_have_text("'none' is not allowed. Use a whole number from 1 to 200.")
    page.fill("#at-once", "3")
    page.get_by_role("button", name="Change").click()
    expect(page.locator("[data-toasts]")).to_contain_text("3 runs at once from now on")
    page.get_by_role("button", name="Stop all").first.click()
    expect(page.locator("#stop-all")).to_contain_text("2 running: each saves a checkpoint")
    expect(page.locator("#stop-all")).to_contain_text("1 queued: it leaves the queue")
    page.locator("[data-stop-now]").click()
    expect(page.locator("[data-part=state] .state")).to_have_text("stopping")
    states = [a.state for a in Attempt.objects.filter(run__study=study).order_by("pk")]
    assert states == ["stopping", "stopping", "stopped"]
    assert Study.objects.get(pk=study.pk).max_concurrent == 3

    page.goto(f"{live_console.url}/tune")
    row = page.locator(f'tr[data-study="{study.pk}"]')
    expect(row).to_contain_text("lr=3e-4, seed=0")
    expect(row.locator(".state")).to_have_text("stopping")
    row.get_by_role("link", name="rates").click()
    page.get_by_role("link", name="In the run list").click()
    expect(page.locator("tr[data-run]")).to_have_count(3)


@pytest.mark.proof
def test_random_draws_from_a_range(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/runs/new?sweep=1")
    page.fill('[name="sweep.knobs.0.id"]', RATE)
    page.select_option('[name="sweep.method"]', "random")
    page.select_option('[name="sweep.knobs.0.kind"]', "range")
    page.fill('[name="sweep.knobs.0.low"]', "1e-3")
    page.fill('[name="sweep.knobs.0.high"]', "1e-5")
    page.fill('[name="sweep.num_runs"]', "9")
    expect(page.locator('[data-error-for~="sweep.knobs.0.high"]')).to_contain_text("not above its start")

    page.fill('[name="sweep.knobs.0.low"]', "1e-6")
    page.select_option('[name="sweep.knobs.0.scale"]', "log")

    expect(page.locator("[data-launch-label]")).to_have_text("Launch 9 runs, 1 at once")
    expect(page.locator(".sweep-points tbody tr")).to_have_count(6)
    expect(page.locator("[data-sweep]")).to_contain_text("and 3 more")
    page.locator("[data-sweep-remove='0']").click()
    expect(page.locator("[data-launch-label]")).to_have_text("Launch the sweep")
    page.locator("[data-sweep-toggle]").click()
    expect(page.locator("[data-launch-label]")).to_contain_text("workers")  # the run alone again
