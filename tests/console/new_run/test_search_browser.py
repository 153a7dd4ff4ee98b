"""The New run page's search in a browser: every option of every adapter leads somewhere, however it is typed."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from jobs.adapters.adapter import adapter
from jobs.catalog.knob import knobs
from jobs.catalog.trainer import trainers
from tests.console.live_console import LiveConsole

pytestmark = pytest.mark.browser

# Asks the page's own module for every [typed text, inputs it must lead to]; gives the texts that lead to none of them.
LOST = """async ([asked, address]) => {
  const { asQuery, knobIndex, rankOf, optionOf } = await import(address);
  const { knobs, fields, told } = await knobIndex(document.getElementById("new-run"));
  const known = { ...knobs, ...fields };
  const finds = (text, says) => says.length
    ? says.every((name) => optionOf(known[name], asQuery(text)))
    : told.some(({ name }) => rankOf(name, asQuery(text)) !== null);
  return asked.filter(([text, says]) => !finds(text, says)).map(([text]) => text);
}"""


@pytest.fixture
def form(page: Page, live_console: LiveConsole) -> Page:
    page.goto(f"{live_console.url}/runs/new?trainer=openrlhf&algorithm=grpo&version=0.11.2")
    expect(page.locator("[data-command-text]")).to_contain_text("manage.py launch")
    return page


def other_options() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every option and key of every trainer and version, with the inputs that it must lead to."""
    for knob in knobs().values():
        for flag in knob.flags:
            for name in flag.names:
                yield name, (f"knobs.{knob.id}",)
    for info in trainers().values():
        for version in info.versions:
            for option in adapter(info.id).option_names(version=version):
                yield option.name, tuple(f"knobs.{name}" if name in knobs() else name for name in option.spec_fields)


def ways_to_type(name: str) -> set[str]:
    """The name as it stands, bare, with dashes, with its last words alone, and as part of a command."""
    bare = name.lstrip("-+~")
    parts = bare.split(".")
    tails = {".".join(parts[place:]) for place in range(len(parts))}
    return {name, bare, f"--{bare}", bare.replace("_", "-"), bare.upper(), f"{bare}=1", f"--{bare} 1e-5", *tails}


def test_every_option_leads_to_what_sets_it_however_it_is_typed(form: Page) -> None:
    asked: list[Any] = [
        [text, list(says)] for name, says in set(other_options()) for text in sorted(ways_to_type(name))
    ]
    assert len(asked) > 5000

    assert form.evaluate(LOST, [asked, "/static/js/new_run/index.js"]) == []


ABOVE_THE_KNOBS = {
    "adv_estimator": "Algorithm",
    "--pretrain": "Model",
    "data.train_files": "Data",
    "actor_rollout_ref.model.path": "Model",
    "--prompt_data": "Data",
    "reward_model": "Reward",
    "trainer.device=cpu": "Hardware",
    "hardware.device": "Hardware",
}


@pytest.mark.proof
def test_what_stands_above_the_knobs_is_found_and_gone_to(form: Page) -> None:
    for typed, label in ABOVE_THE_KNOBS.items():
        form.fill("[data-knob-search]", typed)

        row = form.locator("[data-above] li").filter(has=form.get_by_role("button", name=label, exact=True)).first
        row.get_by_role("button").click()

        reached = form.evaluate("document.activeElement.closest('.field').querySelector('label').textContent")
        assert reached == label, typed


@pytest.mark.proof
def test_a_column_is_found_by_a_trainer_s_flag_where_it_stands(form: Page) -> None:
    form.fill("[data-knob-search]", "--input_key")

    column = form.locator('.field[data-name="data.prompt_column"]')
    expect(column).to_be_visible()
    expect(column.locator(".flag")).to_contain_text("OpenRLHF")
    expect(form.locator("[data-no-knob]")).to_be_hidden()


@pytest.mark.proof
def test_what_pitwall_sets_itself_is_told_with_the_reason(form: Page) -> None:
    form.fill("[data-knob-search]", "--save_path")
    expect(form.locator("[data-told] li").first).to_contain_text(
        "Pitwall keeps the trained model below the run directory."
    )

    form.fill("[data-knob-search]", "no_such_flag_anywhere")

    expect(form.locator("[data-no-knob]")).to_contain_text("no_such_flag_anywhere")
    expect(form.locator("[data-told]")).to_be_hidden()
