"""Models of checkpoints on the Files tab: asked for, called off, failed with the reason, made, and asked a prompt."""

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from jobs.models import Answer, Artifact, Merge, Run
from jobs.runs.lifecycle import finish
from jobs.runs.merges import settle_merge
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import open_run
from tests.rows import NOW, make_artifact, make_run
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]


def trained(live_console: LiveConsole, *, spec: dict[str, Any] | None = None) -> Run:
    """Return a run that has ended with checkpoints of steps 1, 2 and 3, and the model of the last."""
    run = make_run(live_console.project, state="running", spec=spec or {}, user=live_console.user)
    reporter = Reporter(console=live_console, run=run)
    reporter.steps(3)
    about = {"artifact": "checkpoint", "attempt": 1, "size": 2 << 20}
    reporter.post(
        [
            events.artifact(f"checkpoint-{step}", path=f"checkpoints/step-{step}", step=step, **about)
            for step in (1, 2, 3)
        ]
    )
    wait_until(lambda: run.artifacts.count() == 3, 60)
    make_artifact(run, "model-final.zip", step=3)
    finish(run_id=run.pk, attempt=1, state="finished", cause={}, cleanup={}, now=NOW)
    return run


def row_of(page: Page, step: int) -> Locator:
    return page.locator("[data-files] tr", has_text=f"checkpoint-{step}")


def test_a_model_is_asked_for_called_off_made_and_tried(page: Page, live_console: LiveConsole) -> None:
    run = trained(live_console)
    open_run(page, live_console, run, "files")
    expect(row_of(page, 3).get_by_role("link", name="Download model")).to_be_visible()
    expect(row_of(page, 3).get_by_role("button", name="Make a model")).to_have_count(0)
    make = row_of(page, 2).get_by_role("button", name="Make a model of checkpoint 2")

    make.click()
    expect(row_of(page, 2)).to_contain_text("model: waiting for its turn")
    row_of(page, 2).get_by_role("button", name="Cancel the model of checkpoint 2").click()
    expect(row_of(page, 2)).to_contain_text("model: canceled")
    make.click()
    expect(row_of(page, 2)).to_contain_text("model: waiting for its turn")
    Merge.objects.filter(run=run, state="queued").update(state="starting")
    expect(row_of(page, 2)).to_contain_text("model: is being made")
    merge = Merge.objects.get(run=run, state="starting")
    made = make_artifact(run, merge.file_name, step=2)
    settle_merge(merge, problem="", now=NOW)

    link = row_of(page, 2).get_by_role("link", name="Download model")
    expect(link).to_have_attribute("href", f"/runs/{run.pk}/files/{made.pk}")
    expect(row_of(page, 2)).not_to_contain_text("model:")
    form = page.locator('[data-tryit="files"]')
    choice = form.get_by_label("Model to ask")
    expect(choice.locator("option")).to_have_text(["model-final.zip", "model-step-2.zip"])
    choice.select_option("model-step-2.zip")
    form.get_by_role("textbox").fill("What is 1 plus 1?")
    form.get_by_role("button", name="Ask").click()
    wait_until(lambda: Answer.objects.filter(run=run, artifact=made).exists(), 30)
    wait_until(lambda: bool(Answer.objects.filter(run=run, artifact=made).update(state="finished")), 30)

    row_of(page, 2).get_by_role("button", name="Delete the model of checkpoint 2").click()
    dialog = page.get_by_role("dialog", name="Delete model-step-2.zip?")
    dialog.get_by_role("button", name="Delete model").click()
    expect(make).to_be_visible()
    expect(row_of(page, 3).get_by_role("button", name="Delete the model")).to_have_count(0)
    assert not Artifact.objects.filter(pk=made.pk).exists()


def test_why_there_is_no_model_stands_beside_the_checkpoint(page: Page, live_console: LiveConsole) -> None:
    run = trained(live_console)
    merge = Merge.objects.create(run=run, attempt=1, step=1, submission_id="x", state="starting", created_at=NOW)
    settle_merge(merge, problem="The job that makes the model ended: it was killed.", now=NOW)

    open_run(page, live_console, run, "files")

    expect(row_of(page, 1)).to_contain_text("model: not made")
    expect(row_of(page, 1)).to_contain_text("The job that makes the model ended: it was killed.")
    expect(row_of(page, 1).get_by_role("button", name="Make a model of checkpoint 1")).to_be_enabled()


def test_a_run_of_whose_checkpoints_no_model_is_made_says_why(page: Page, live_console: LiveConsole) -> None:
    megatron = {"algorithm": "grpo", "trainer": {"name": "verl"}, "knobs": {"parallel.engine": "megatron"}}
    run = trained(live_console, spec=megatron)

    open_run(page, live_console, run, "files")

    make = row_of(page, 1).get_by_role("button", name="Make a model of checkpoint 1")
    expect(make).to_be_disabled()
    assert "on a GPU alone" in str(make.get_attribute("title"))
