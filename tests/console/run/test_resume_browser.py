"""A run that died and went on, in a browser: one clean line, the dead branch grey behind it, and how it is resumed."""

import time

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobs.models import Attempt, Run
from jobs.runs import lifecycle
from jobs.runs.resume import resume_run
from profiling import events
from tests.attempts import lose_checkpoint
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import open_run, until
from tests.rows import NOW, make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.5 GiB. GPU 0 has a total capacity of 44.42 GiB of "
    "which 1.20 GiB is free."
)
CHART = "document.querySelector('[data-plan=\"reward\"]').chart"
CLEAN = f"Array.from({CHART}?.shown?.lines?.[0]?.column.x ?? [])"


def died(live_console: LiveConsole, *, steps: int = 8, checkpoint: int = 4) -> Run:
    """Return a run that died after `steps` steps with one checkpoint."""
    run = make_run(
        live_console.project, state="running", spec={"knobs": {"train.num_steps": 20}}, user=live_console.user
    )
    reporter = Reporter(console=live_console, run=run)
    reporter.steps(steps)
    path = f"checkpoints/step-{checkpoint}"
    reporter.post(
        [events.artifact("checkpoint", artifact="checkpoint", path=path, attempt=1, step=checkpoint, size=2_500_000)]
    )
    cause = {"side": "cluster", "text": "policy rank 1 was killed", "role": "policy", "rank": 1, "step": steps}
    reporter.terminal_event("failed", cause=cause)
    wait_for_state(run, "failed")
    return run


def wait_for_state(run: Run, state: str) -> None:
    end = time.monotonic() + 60
    while Run.objects.values_list("state", flat=True).get(pk=run.pk) != state:
        assert time.monotonic() < end, f"never {state}"
        time.sleep(0.03)


def go_on(live_console: LiveConsole, run: Run, *, after: int, steps: int) -> None:
    """Let the run's second attempt train from its checkpoint, as admission and its runner would."""
    assert lifecycle.admit(run_id=run.pk, attempt=2, now=NOW)
    now = time.time_ns()
    Reporter(console=live_console, run=run, num_steps=after, attempt=2, reward=0.6, clock=now).steps(steps)


def test_a_dead_run_is_resumed_and_its_charts_are_one_clean_history(page: Page, live_console: LiveConsole) -> None:
    run = died(live_console)
    open_run(page, live_console, run)
    expect(page.locator('[data-action="resume"]')).to_have_class("btn btn-primary")
    expect(page.locator('[data-action="attempts"]')).to_have_text("attempt 1 of 1")
    until(page, f"{CLEAN}.length === 8")
    expect(page.locator("[data-dead-toggle]").first).to_be_hidden()

    page.locator('[data-action="resume"]').click()
    dialog = page.locator('[data-dialog="resume"]')
    expect(dialog.locator("[data-checkpoints] tr")).to_have_count(2)
    expect(dialog.locator("[data-checkpoints] tr").first).to_contain_text("step 4")
    expect(dialog.locator("[data-checkpoints] tr").first).to_contain_text("0.420")
    dialog.locator('[name="policy_ranks"]').fill("3")
    dialog.locator('[data-field="resume-submit"]').click()
    expect(dialog.locator('[data-field="resume-problem"]')).to_contain_text("do not divide by 3 policy ranks")
    assert Attempt.objects.filter(run=run).count() == 1
    dialog.locator('[name="policy_ranks"]').fill("1")
    dialog.locator('[data-field="resume-submit"]').click()

    expect(dialog).to_be_hidden()
    expect(page.locator('[data-action="attempts"]')).to_have_text("attempt 2 of 2")
    attempt = Attempt.objects.get(run=run, number=2)
    assert (attempt.resume_attempt, attempt.resume_step, attempt.overrides) == (1, 4, {"hardware": {"policy_ranks": 1}})
    until(page, f"{CLEAN}.length === 4")  # the page cut its charts without a reload
    expect(page.locator('[data-field="step"]')).to_have_text("4")
    expect(page.locator('[data-field="latest-title"]')).to_have_text("Samples of step 4")

    go_on(live_console, run, after=4, steps=3)

    until(page, f"{CLEAN}.join() === '1,2,3,4,5,6,7'")
    ys = page.evaluate(f"Array.from({CHART}.shown.lines[0].column.y)")
    assert ys == pytest.approx([0.405, 0.41, 0.415, 0.42, 0.625, 0.63, 0.635])
    assert page.evaluate(f"{CHART}.shown.numDead") == 0
    until(page, "window.pitwallRun.view.marks.some((mark) => mark.type === 'resume' && mark.x === 4)")
    head = page.locator('[data-plan="reward"]').locator("xpath=..").locator('[data-part="value"]')
    expect(head).to_have_text("0.635")

    box = page.locator("[data-panel=overview] [data-dead]")
    box.check()
    until(page, f"{CHART}.shown.numDead === 1")
    assert page.evaluate(f"{CHART}.shown.drawn[0].look") == "dead"  # behind all else
    assert page.evaluate(f"Array.from({CHART}.shown.drawn[0].column.x)") == [4, 5, 6, 7, 8]
    assert page.evaluate(f"{CHART}.shown.lines.length") == 1  # neither in the legend nor in the head
    until(page, "location.search.includes('dead=1')")
    page.reload()
    until(page, f"{CHART}?.shown?.numDead === 1 && {CLEAN}.join() === '1,2,3,4,5,6,7'")
    page.locator("[data-panel=overview] [data-axis]").select_option("time")
    until(page, f"{CHART}.shown.numDead === 1 && {CLEAN}.length === 7 && {CLEAN}[0] > 1e9")  # seconds, not steps
    clock = page.evaluate(f"[{CLEAN}, Array.from({CHART}.shown.drawn[0].column.x)]")
    assert clock[0] == sorted(clock[0])
    assert clock[1] == sorted(clock[1])


@pytest.mark.proof
def test_every_tab_marks_the_dead_branch(page: Page, live_console: LiveConsole) -> None:
    run = died(live_console)
    resume_run(run_id=run.pk, step=4, hardware={}, user=live_console.user, now=NOW)
    go_on(live_console, run, after=4, steps=2)
    open_run(page, live_console, run, "timeline")

    row = "window.pitwallRun.store.lanes.byKey.get('driver|0')?.rows[0]"
    until(page, f"({row})?.length === 4 * 10")
    dead = f"{row}.step.filter((_step, i) => {row}.isDead[i])"
    assert set(page.evaluate(dead)) == {5, 6, 7, 8}
    assert page.evaluate("[...window.pitwallRun.store.lanes.steps.keys()].sort((a, b) => a - b)") == [1, 2, 3, 4, 5, 6]
    page.locator(".run-span-table summary").click()
    expect(page.locator("[data-span-rows] .tag").first).to_have_text("dead branch")

    page.locator('.run-tabs [data-tab="samples"]').click()
    expect(page.locator("[data-samples] tr").first.locator(".run-attempt-tag")).to_have_text("a2")
    expect(page.locator("[data-samples] tr.is-dead")).to_have_count(4 * 4)
    expect(page.locator("[data-samples] tr.is-dead .tag").first).to_have_text("a1")

    page.locator('.run-tabs [data-tab="logs"]').click()
    expect(page.locator("[data-log-view]")).to_contain_text("step 6 of the driver")
    page.locator("[data-log-attempt]").select_option("1")
    expect(page.locator("[data-log-view]")).to_contain_text("step 8 of the driver")
    expect(page.locator("[data-log-view] .run-log-source", has_text="a2")).to_have_count(0)
    assert page.locator('[data-log="download"]').get_attribute("href").endswith("log.txt?attempt=1")

    page.locator('.run-tabs [data-tab="files"]').click()
    expect(page.locator("[data-files] tr").first.locator(".tag")).to_have_text("a1")

    page.locator('[data-action="attempts"]').click()
    rows = page.locator("[data-attempts] tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("from checkpoint 4 of attempt 1")
    expect(rows.nth(0)).to_contain_text(live_console.user.get_username())
    expect(rows.nth(1)).to_contain_text("Cluster, policy 1, step 8: policy rank 1 was killed")
    expect(rows.nth(1).locator("td").nth(4)).to_have_text("1–4")


def test_three_attempts_are_split_as_computed_by_hand(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/")
    split = """async () => {
      const { Branches } = await import("/static/js/charts/branches.js");
      const one = (number, resume_attempt, resume_step, visible_through, step) =>
        ({ number, resume_attempt, resume_step, visible_through, step });
      const branches = new Branches([one(1, null, 0, 4, 7), one(2, 1, 4, 6, 8), one(3, 2, 6, null, 8)]);
      const series = (attempt, x, kind = "metric") => ({ attempt, kind, x });
      const told = ({ clean, dead }) => [clean.map(({ series, count }) => [series.attempt, series.x.slice(0, count)]),
        dead.map(({ series, from }) => [series.attempt, series.x.slice(from)])];
      return {
        steps: told(branches.split([series(1, [1, 2, 3, 4, 5, 6, 7]), series(2, [4, 5, 6, 7, 8]), series(3, [7, 8])])),
        time: told(branches.split([series(1, [10, 11], "system"), series(2, [20], "system")])),
        restarted: told(new Branches([one(1, null, 0, -1, 3), one(2, null, 0, null, 1)])
          .split([series(1, [0, 1]), series(2, [1])])),
        resumes: branches.resumes.map(({ step }) => step),
        hasDead: branches.hasDead,
      };
    }"""

    found = page.evaluate(split)

    # At step 4 the second attempt's own point counts; the dead branch of the first leaves the history there.
    assert found["steps"] == [[[1, [1, 2, 3]], [2, [4, 5, 6]], [3, [7, 8]]], [[1, [4, 5, 6, 7]], [2, [6, 7, 8]]]]
    assert found["time"] == [[[1, [10, 11]], [2, [20]]], []]
    assert found["restarted"] == [[[2, [1]]], [[1, [0, 1]]]]
    assert (found["resumes"], found["hasDead"]) == ([4, 6], True)


@pytest.mark.proof
def test_a_retry_to_come_is_said_and_can_be_called_off(page: Page, live_console: LiveConsole) -> None:
    run = died(live_console)
    Run.objects.filter(pk=run.pk).update(spec={**run.spec, "policy": {"retries": 2, "retry_on": "cluster"}})
    open_run(page, live_console, run)

    expect(page.locator('[data-field="retry"]')).to_contain_text("Attempt 2 of 3 follows")
    expect(page.locator('[data-action="resume"]')).to_have_class("btn")  # it goes on by itself
    page.locator('[data-action="cancel-retry"]').click()

    expect(page.locator('[data-field="retry"]')).to_have_text("Not retried: it was asked to stop.")
    expect(page.locator('[data-action="resume"]')).to_have_class("btn btn-primary")
    assert Run.objects.get(pk=run.pk).is_stop_requested


@pytest.mark.proof
def test_home_leads_to_the_dialog_and_what_is_lost_is_not_proposed(page: Page, live_console: LiveConsole) -> None:
    run = died(live_console)
    resume_run(run_id=run.pk, step=4, hardware={}, user=live_console.user, now=NOW)
    why = lose_checkpoint(run, 2)
    Run.objects.filter(pk=run.pk).update(ended_at=timezone.now())  # home names what failed within a day of the clock
    page.goto(f"{live_console.url}/")

    page.locator(".attention li", has_text=run.pk).get_by_role("link", name="Resume").click()

    dialog = page.locator('[data-dialog="resume"]')
    expect(dialog).to_be_visible()
    until(page, "!location.search.includes('resume')")
    expect(dialog.locator("[data-checkpoints] tr").first.locator(".tag")).to_have_text("lost")
    expect(dialog.locator("[data-checkpoints] tr").first).to_contain_text(why)
    expect(dialog.get_by_role("radio", name="the start")).to_be_checked()
    expect(dialog.get_by_role("radio", name="step 4")).to_be_enabled()  # its node may be back
    dialog.locator("[data-close]").first.click()
    page.locator('.run-tabs [data-tab="files"]').click()
    expect(page.locator("[data-files] tr").first.locator(".state")).to_have_text("lost")


@pytest.mark.proof
def test_another_trainers_run_is_offered_only_what_it_can_do(page: Page, live_console: LiveConsole) -> None:
    spec = {"algorithm": "sft", "trainer": {"name": "openrlhf"}}
    run = make_run(live_console.project, state="running", spec=spec, user=live_console.user)
    open_run(page, live_console, run)
    expect(page.locator('[data-action="stop"]')).to_be_visible()
    expect(page.locator('[data-action="checkpoint"]')).to_be_hidden()
    expect(page.locator("[data-profile-buttons]")).to_be_visible()  # by our recorder, from beside
    expect(page.locator('[data-action="record"]')).to_be_visible()
    page.locator('[data-tab="profile"]').first.click()
    expect(page.get_by_text("No step recorded yet")).to_be_visible()

    Reporter(console=live_console, run=run).terminal_event(
        "failed", cause={"side": "user", "text": "no flash attention"}
    )
    wait_for_state(run, "failed")
    page.locator('[data-action="resume"]').click()
    dialog = page.locator('[data-dialog="resume"]')
    expect(dialog).to_be_visible()
    expect(dialog.locator('[name="num_steps"]')).to_be_hidden()
    dialog.locator('[data-field="resume-submit"]').click()

    expect(dialog).to_be_hidden()
    assert Attempt.objects.get(run=run, number=2).overrides == {}


def test_a_run_that_died_of_memory_offers_the_clone_that_fits_before_its_resumption(
    page: Page, live_console: LiveConsole
) -> None:
    spec = {
        "algorithm": "sft",
        "trainer": {"name": "verl", "version": "0.9.1"},
        "model": {"kind": "hub", "id": "Qwen/Qwen2.5-7B"},
    }
    cause = {"side": "trainer", "rank": 0, "step": 3, "text": "policy rank 0 ran out of memory at step 3 (update)."}
    cause["log_line"] = OUT_OF_MEMORY
    run = make_run(live_console.project, state="failed", spec=spec, cause=cause, user=live_console.user)
    node = {"accelerator": "L40S", "gpus": 1, "cpus": 64, "memory_bytes": 5e11, "count": 1, "ids": []}
    Attempt.objects.filter(run=run).update(num_gpus=1, ran_on={"nodes": [node]})

    open_run(page, live_console, run)

    expect(page.get_by_role("link", name="Clone with it")).to_be_visible()
    expect(page.locator('[data-action="resume"]')).to_be_visible()
    expect(page.locator(".btn-primary:visible")).to_have_text("Clone with it")
