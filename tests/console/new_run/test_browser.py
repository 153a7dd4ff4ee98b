"""The New run page in a browser, on a real console: fill, see what comes of it, mend, launch. The trial is real."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jobs.models import Run, Upload
from tests.console.live_console import LiveConsole
from tests.console.window import NAMELESS
from tests.rows import make_run

pytestmark = pytest.mark.browser

TRIAL_MS = 120_000  # starting the trial process on a busy machine


@pytest.fixture(autouse=True)
def _empty(live_console: LiveConsole) -> None:
    Run.objects.filter(project=live_console.project).delete()


@pytest.fixture
def form(page: Page, live_console: LiveConsole) -> Page:
    """The page, opened and checked by the server for the first time."""
    page.goto(f"{live_console.url}/runs/new")
    expect(page.locator("[data-command-text]")).to_contain_text("manage.py launch")
    return page


def test_the_algorithm_brings_its_own_knobs_and_defaults(form: Page) -> None:
    expect(form.locator('[name="knobs.rollout.temperature"]')).to_be_visible()
    expect(form.locator('[name="knobs.train.batch_size"]')).to_be_hidden()

    form.select_option("[name=algorithm]", "sft")

    expect(form.locator('[name="knobs.rollout.temperature"]')).to_be_hidden()
    expect(form.locator('[name="knobs.train.batch_size"]')).to_be_visible()
    expect(form.locator('[name="reward.kind"]')).to_be_hidden()
    expect(form.locator('[name="knobs.optimizer.learning_rate"]')).to_have_value("0.003")
    expect(form.locator("[data-num-changes]")).to_have_text("1 change")
    expect(form.locator("[data-command-text]")).to_contain_text('{"algorithm": "sft"}')


def test_another_reward_is_added_weighed_and_taken_away(form: Page) -> None:
    form.get_by_role("button", name="Add a reward").click()

    kind = form.locator("[data-mix-parts] select")
    expect(kind).to_be_focused()
    expect(kind).to_have_value("format")
    expect(form.locator('[name="reward.weight"]')).to_be_visible()
    form.locator("[data-mix-parts] [data-part=weight]").fill("0.2")
    form.keyboard.press("Tab")
    expect(form.locator("[data-command-text]")).to_contain_text('"weight": 0.2')

    form.locator("[data-mix-remove]").click()
    expect(form.locator("[data-mix]")).to_be_hidden()
    expect(form.locator("[data-num-changes]")).to_have_text("0 changes")


def test_the_preview_shows_the_data_and_its_loss_mask(form: Page) -> None:
    form.select_option("[name=algorithm]", "sft")

    expect(form.locator(".sample .trained").first).to_be_visible(timeout=TRIAL_MS)
    expect(form.locator(".samples > li")).to_have_count(5)
    expect(form.locator(".lengths .limit-text")).to_have_text("limit 128 tokens")
    expect(form.locator('[data-caption="model.id"]')).to_contain_text("parameters")
    # The form asks again as answers come in, and each answer replaces the rows: one look can meet a row that has gone.
    expect(form.locator(".sample .trained").first).to_have_css("border-bottom-style", "solid")
    assert form.evaluate(NAMELESS) == []


def test_the_one_check_that_cannot_be_made_is_told_above(form: Page) -> None:
    expect(form.locator("#verdict-title")).to_contain_text("Cluster not reached", timeout=TRIAL_MS)
    expect(form.locator(".verdict .state")).to_contain_text("not all checked")


def test_a_wrong_value_is_told_beside_its_field_and_gets_the_focus(form: Page) -> None:
    temperature = form.locator('[name="knobs.rollout.temperature"]')
    temperature.fill("hot")
    expect(form.locator('[data-error-for="knobs.rollout.temperature"]')).to_have_text(
        "'hot' is not allowed for Temperature. Use a number from 0.01 to 5."
    )
    form.locator("[name=name]").focus()

    form.keyboard.press("Control+Enter")

    expect(temperature).to_be_focused()
    expect(temperature).to_have_attribute("aria-invalid", "true")
    expect(temperature).to_have_value("hot")
    assert Run.objects.count() == 0


def test_a_problem_of_a_hidden_field_is_brought_into_sight(form: Page) -> None:
    form.locator('[data-show="all"]').click()
    form.locator('[name="knobs.logging.samples_per_step"]').evaluate("e => { e.value = '-1'; }")
    form.locator('[data-show="essential"]').click()

    form.keyboard.press("Control+Enter")

    expect(form.locator('[name="knobs.logging.samples_per_step"]')).to_be_focused()


def test_missing_data_is_told_by_the_preview(form: Page) -> None:
    form.select_option('[name="data.kind"]', "path")
    expect(form.locator('[data-error-for~="data.id"]')).to_be_hidden()  # nothing typed yet, nothing wrong yet

    form.fill('[name="data.id.path"]', "/nowhere/rows.jsonl")

    expect(form.locator('[data-error-for~="data.id"]')).to_contain_text("There is no file", timeout=TRIAL_MS)
    expect(form.locator(".verdict .state")).to_contain_text("1 problem")


@pytest.mark.proof
def test_marks_say_who_chose_a_value_and_restore_what_it_was(form: Page) -> None:
    field = form.locator('.field[data-name="knobs.train.num_steps"]')
    field.locator("input").fill("7")

    expect(field.locator(".origin")).to_have_attribute("data-origin", "you")
    expect(field.locator(".was")).to_have_text("was 60")
    form.locator('[data-show="changed"]').click()
    expect(form.locator(".knob-groups .field:visible")).to_have_count(1)
    field.locator(".was").click()

    expect(field.locator("input")).to_have_value("60")
    expect(form.locator("[data-no-knob]")).to_be_visible()


def test_knobs_are_found_by_name_or_flag_and_explained(form: Page) -> None:
    form.keyboard.press("/")
    form.keyboard.type("kl_est")

    expect(form.locator(".knob-groups .field:visible")).to_have_count(1)
    form.locator('[data-help="knobs.algorithm.kl_estimator"]').click()
    expect(form.locator("#knob-help")).to_be_visible()
    expect(form.locator("#knob-help")).to_contain_text("Schulman")
    form.keyboard.press("Escape")
    expect(form.locator("#knob-help")).to_be_hidden()


@pytest.mark.proof
def test_undo_takes_back_one_change_at_a_time(form: Page) -> None:
    steps = form.locator('[name="knobs.train.num_steps"]')
    steps.fill("7")
    steps.press("Tab")
    form.select_option('[name="knobs.memory.zero_stage"]', "3")

    form.locator("h1").click()
    form.keyboard.press("Control+z")
    expect(form.locator('[name="knobs.memory.zero_stage"]')).to_have_value("2")
    expect(steps).to_have_value("7")
    form.locator("[data-undo]").click()

    expect(steps).to_have_value("60")
    expect(form.locator("[data-undo]")).to_be_disabled()


def test_a_reload_loses_nothing(form: Page) -> None:
    form.fill("[name=name]", "half done")
    form.fill('[name="knobs.train.seed"]', "11")

    form.reload()

    expect(form.locator("[name=name]")).to_have_value("half done")
    expect(form.locator('[name="knobs.train.seed"]')).to_have_value("11")
    form.locator("[data-draft-drop]").click()
    expect(form.locator('[name="knobs.train.seed"]')).to_have_value("0")


@pytest.mark.proof
def test_a_custom_reward_is_tried_and_its_fault_is_named(form: Page) -> None:
    form.select_option('[name="reward.kind"]', "custom")
    form.locator("[data-reward-template]").click()
    form.locator(".reward-editor [data-try-reward]").click()
    expect(form.locator(".reward-table tbody tr")).to_have_count(8, timeout=TRIAL_MS)

    form.fill('[name="reward.source"]', "def reward(prompt, completion, answer):\n    return undefined_name\n")
    form.locator(".reward-editor [data-try-reward]").click()

    expect(form.locator("#e-reward-source")).to_contain_text("undefined_name", timeout=TRIAL_MS)
    expect(form.locator("#e-reward-source")).to_contain_text("line 2")


@pytest.mark.proof
def test_a_clone_says_what_differs(page: Page, live_console: LiveConsole) -> None:
    run = make_run(live_console.project, spec={"name": "first-t01", "knobs": {"train.num_steps": 12}})
    page.goto(f"{live_console.url}/runs/new?from={run.pk}")
    expect(page.locator(".origin-line")).to_have_text(f"Cloned from {run.pk}, 0 changes")

    page.fill('[name="knobs.train.num_steps"]', "24")

    expect(page.locator(".origin-line")).to_have_text(f"Cloned from {run.pk}, 1 change")
    expect(page.locator('.field[data-name="knobs.train.num_steps"] .was')).to_have_text("was 12")
    expect(page.locator("[name=name]")).to_have_value("first-t02")


def test_a_spec_goes_out_as_json_and_comes_back(form: Page, tmp_path: Path) -> None:
    form.fill('[name="knobs.train.num_steps"]', "9")
    expect(form.locator("[data-command-text]")).to_contain_text('"train.num_steps": 9')
    with form.expect_download() as saved:
        form.locator("[data-save]").click()
    file = tmp_path / "spec.json"
    saved.value.save_as(file)
    assert json.loads(file.read_text())["knobs"]["train.num_steps"] == {"value": 9, "origin": "you"}

    form.locator("[data-open=import-dialog]").click()
    form.fill("#import-text", '{"knobs": {"train.nmu_steps": 3}}')
    form.locator("[data-import-now]").click()
    expect(form.locator("#import-errors")).to_contain_text("Did you mean train.num_steps?")
    form.fill("#import-text", '{"algorithm": "sft", "knobs": {"train.num_steps": 33}}')
    form.locator("[data-import-now]").click()

    expect(form.locator("[name=algorithm]")).to_have_value("sft")
    expect(form.locator('[name="knobs.train.num_steps"]')).to_have_value("33")


@pytest.mark.proof
def test_a_file_is_uploaded_and_previewed(form: Page, live_console: LiveConsole, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "1 + 1?", "solution": "2"}\n' * 10)
    form.select_option('[name="data.kind"]', "upload")

    form.set_input_files("#f-data-file", file)

    expect(form.locator("[data-drop-text]")).to_contain_text("mine.jsonl", timeout=TRIAL_MS)
    expect(form.locator('[name="data.prompt_column"]')).to_have_value("question", timeout=TRIAL_MS)
    expect(form.locator('[name="data.answer_column"]')).to_have_value("solution")
    expect(form.locator('[data-caption="data.id"]')).to_have_text("10 rows, 1 held out", timeout=TRIAL_MS)
    assert Upload.objects.filter(project=live_console.project, file_name="mine.jsonl").count() == 1


@pytest.mark.proof
def test_a_file_of_the_wrong_kind_is_refused_before_it_is_sent(form: Page, tmp_path: Path) -> None:
    file = tmp_path / "mine.xlsx"
    file.write_text("a,b\n")
    form.select_option('[name="data.kind"]', "upload")

    form.set_input_files("#f-data-file", file)

    expect(form.locator('[data-error-for~="data.id"]')).to_contain_text("mine.xlsx is no JSONL, JSON, CSV or Parquet")


@pytest.mark.proof
def test_a_double_click_launches_one_run_and_opens_its_page(form: Page) -> None:
    form.fill("[name=name]", "from the browser")

    form.locator("[data-launch]").dblclick()

    form.wait_for_url(re.compile(r"/runs/r-[0-9a-f]+$"), timeout=TRIAL_MS)
    run = Run.objects.get()
    assert (run.name, run.state) == ("from the browser", "queued")
    assert form.url.endswith(run.pk)


def test_a_console_that_does_not_answer_is_said_and_nothing_is_lost(form: Page) -> None:
    form.route("**/runs/new", lambda route: route.abort() if route.request.method == "POST" else route.continue_())
    form.fill("[name=name]", "kept")

    form.locator("[data-launch]").click()

    expect(form.locator("[data-form-problems]")).to_contain_text("The console does not answer")
    expect(form.locator("[name=name]")).to_have_value("kept")
    expect(form.locator("[data-launch]")).not_to_have_attribute("aria-disabled", "true")


def test_a_recipe_fills_the_form_and_undo_brings_back_what_stood_there(form: Page) -> None:
    form.fill('[name="knobs.train.num_steps"]', "9")
    form.locator('[name="knobs.train.num_steps"]').press("Tab")
    form.locator("[data-open=recipe-dialog]").click()
    form.locator("[data-recipe-search]").fill("verl grpo qwen3-8b 8 gpus")

    form.locator('[data-recipe="verl-grpo-qwen3-8b"]').click()

    expect(form.locator('[name="trainer.name"]')).to_have_value("verl")
    field = form.locator('.field[data-name="knobs.rollout.prompts_per_step"]')
    expect(field.locator("input")).to_have_value("1024")
    expect(field.locator(".origin")).to_have_attribute("data-origin", "recipe")
    expect(form.locator(".origin-line")).to_contain_text("From GRPO, Qwen3-8B, verl, 8 GPUs, 0 changes")
    form.locator('[data-command="trainer"]').click()
    expect(form.locator("[data-command-text]")).to_contain_text("-m verl.trainer.main_ppo")
    form.locator("[data-undo]").click()

    expect(form.locator('[name="trainer.name"]')).to_have_value("native")
    expect(form.locator('[name="knobs.train.num_steps"]')).to_have_value("9")
    expect(form.locator(".origin-line")).to_have_text("1 change")


def test_what_was_typed_goes_along_to_another_trainer_and_comes_back(form: Page) -> None:
    form.fill('[name="knobs.rollout.temperature"]', "0.7")
    form.fill('[name="hardware.policy_ranks"]', "1")

    form.select_option('[name="trainer.name"]', "openrlhf")

    expect(form.locator('[name="trainer.version"]')).to_have_value("0.11.2")
    expect(form.locator('[name="knobs.rollout.temperature"]')).to_have_value("0.7")
    expect(form.locator('[name="hardware.policy_ranks"]')).to_have_count(0)
    form.select_option('[name="trainer.version"]', "0.8.6")
    expect(form.locator(".field[data-name='knobs.rollout.temperature'] .flag")).to_have_text("--temperature")
    form.select_option('[name="trainer.name"]', "native")

    expect(form.locator('[name="hardware.policy_ranks"]')).to_have_value("1")
    expect(form.locator("[data-num-changes]")).to_have_text("2 changes")


@pytest.mark.proof
def test_a_knob_is_found_by_any_framework_s_flag_and_it_is_said_whose_it_is(form: Page) -> None:
    form.fill("[data-knob-search]", "--vllm.num_engines")
    expect(form.locator("[data-elsewhere] li")).to_contain_text(["OpenRLHF 0.11.2, 0.10.2"])

    form.fill("[data-knob-search]", "ppo_mini_batch_size")

    field = form.locator('.field[data-name="knobs.train.updates_per_rollout"]')
    expect(field).to_be_visible()
    expect(field.locator(".flag")).to_have_text(re.compile(r"· verl.*: actor_rollout_ref\.actor\.ppo_mini_batch_size"))


def test_a_finding_is_mended_by_its_button_and_an_error_can_be_put_aside(page: Page, live_console: LiveConsole) -> None:
    page.goto(f"{live_console.url}/runs/new?trainer=verl&algorithm=dapo")
    finding = page.locator('[data-finding="algorithm.clip_higher_is_looser"]')
    expect(finding).to_contain_text("looser")
    finding.locator("[data-jump]").first.click()
    expect(page.locator('[name="knobs.algorithm.clip_ratio_high"]')).to_be_focused()

    finding.locator("[data-fix]").first.click()

    expect(finding).to_have_count(0)
    expect(page.locator('.field[data-name="knobs.algorithm.clip_ratio_high"] .origin')).to_have_attribute(
        "data-origin", "you"
    )
    page.fill('[name="knobs.train.updates_per_rollout"]', "7")
    error = page.locator('[data-finding="batch.updates_do_not_divide_prompts"]')
    # The verdict above says "error" only until the trial has found that the bundled model's context is too short.
    expect(error).to_contain_text("do not divide")
    for override in page.locator("[data-override]").all():
        override.click()
        expect(error).to_be_visible()
    expect(error).to_contain_text("put aside")
    expect(page.locator("[data-command-text]")).to_contain_text('"overridden": ["batch.updates_do_not_divide_prompts"')


@pytest.mark.proof
def test_samples_too_long_for_the_bundled_model_are_cut_to_its_context_by_one_click(
    page: Page, live_console: LiveConsole
) -> None:
    page.goto(f"{live_console.url}/runs/new?trainer=openrlhf&algorithm=sft")
    failed = page.locator("[data-check=failed]")
    expect(failed).to_contain_text("Longest sample is 2,048 tokens", timeout=TRIAL_MS)

    failed.locator("[data-fix]").click()

    expect(page.locator('[name="knobs.train.max_sequence_tokens"]')).to_have_value("512")
    expect(failed).to_have_count(0, timeout=TRIAL_MS)


def test_a_pasted_command_becomes_a_filled_form_in_two_clicks(form: Page) -> None:
    form.locator("[data-open=import-dialog]").click()
    form.fill("#import-text", COMMAND)

    form.locator("[data-import-now]").click()

    expect(form.locator('[name="trainer.name"]')).to_have_value("openrlhf")
    expect(form.locator('[name="algorithm"]')).to_have_value("sft")
    expect(form.locator('[name="model.id.hub"]')).to_have_value("Qwen/Qwen3-0.6B")
    expect(form.locator('[name="knobs.optimizer.learning_rate"]')).to_have_value("5e-6")
    expect(form.locator("[data-pasted=unread]")).to_contain_text("--nonsense_flag")
    expect(form.locator("[data-pasted=left-out]")).to_contain_text("below the run directory")
    expect(form.locator("[data-pasted=unread]")).not_to_contain_text("--save_path")
    expect(form.locator("[data-command-text]")).to_contain_text('"openrlhf"')


COMMAND = """deepspeed --module openrlhf.cli.train_sft \\
  --max_len 2048 --dataset Open-Orca/OpenOrca --input_key question --output_key response \\
  --train_batch_size 256 --micro_train_batch_size 2 --pretrain Qwen/Qwen3-0.6B \\
  --learning_rate 5e-6 --save_path ./checkpoint --nonsense_flag 3
"""
