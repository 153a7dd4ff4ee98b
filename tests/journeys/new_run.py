"""The New run form as a person fills it, and the page of the run that it opens."""

import re
import time
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.journeys.conftest import Site

START_MS = 400_000  # imports of torch, DeepSpeed and vLLM in four processes on two cores


def fill_small_run(
    page: Page,
    stack: Site,
    *,
    name: str,
    steps: int,
    nsys_ready: str = "off",
    ranks: str = "",
    layout: str = "",
    **knobs: str,
) -> None:
    """Fill the form for a run of `steps` small steps on the bundled model, which nsys does not record.

    `ranks` and `layout`: how many ranks the policy has and where the roles sit, if not as the form proposes.
    """
    open_form(page, stack)
    values = {
        "train.num_steps": str(steps),
        "rollout.prompts_per_step": "4",
        "rollout.samples_per_prompt": "4",
        "eval.num_prompts": "8",
        **{knob.replace("__", "."): value for knob, value in knobs.items()},
    }
    fields = {"name": name, **{f"knobs.{knob}": value for knob, value in values.items()}}
    placed = {"hardware.policy_ranks": ranks, "hardware.layout": layout}
    fill(page, fields | {field: value for field, value in placed.items() if value} | {"profile.nsys_ready": nsys_ready})


def open_form(page: Page, stack: Site, query: str = "") -> None:
    """Open the form with every knob of it unfolded, once the server has checked it for the first time."""
    page.goto(f"{stack.url}/runs/new{query}")
    expect(page.locator("[data-command-text]")).to_contain_text("manage.py launch")
    page.get_by_role("tab", name=re.compile("All")).or_(
        page.get_by_role("button", name=re.compile("^All"))
    ).first.click()
    folded = page.locator('.knob-group h3 button[aria-expanded="false"]:visible')
    while folded.count():
        folded.first.click()


def fill(page: Page, fields: Mapping[str, str]) -> None:
    """Type into inputs and choose of lists, in the order given."""
    for name, value in fields.items():
        field = page.locator(f'[name="{name}"]')
        if field.evaluate("(node) => node.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)


def fill_reward(page: Page, source: str) -> None:
    """Have the run rewarded by a function of one's own."""
    page.select_option('[name="reward.kind"]', "custom")
    page.locator('[name="reward.file_name"]').fill("judge.py")
    page.locator('[name="reward.source"]').fill(source)


def launch(page: Page) -> str:
    """Press the launch button; return the id of the run whose page opens."""
    page.get_by_role("button", name=re.compile("^Launch")).click()
    page.wait_for_url(re.compile(r"/runs/r-[0-9a-f]+$"), timeout=200_000)
    return page.url.rsplit("/", 1)[1]


STEPS = "window.pitwallRun.store.of('reward/mean').flatMap((series) => series.x)"


def until(page: Page, expression: str, *, seconds: float = 120) -> Any:
    """Wait until a JavaScript expression is true, return it; Playwright's own wait runs into the page's ban on eval."""
    deadline = time.monotonic() + seconds
    while not (found := page.evaluate(f"Boolean(window.pitwallRun) && ({expression})")):
        assert time.monotonic() < deadline, f"{expression} did not come true within {seconds:.0f} s"
        page.wait_for_timeout(100)
    return found


def state(page: Page) -> Locator:
    return page.locator('[data-field="state"]')
