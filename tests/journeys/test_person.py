"""What a person does on the real parts: sign in, launch, watch, try, download; record; cancel; stop; see a cause."""

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.journeys import recording
from tests.journeys.conftest import Stack
from tests.journeys.new_run import START_MS, STEPS, fill_reward, fill_small_run, launch, state, until

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.engine]

END_MS = 600_000
STOP_MS = 600_000  # a run that is loading is given 90 s to save
STEPS_OF_FIRST = 8
PROMPT = "Ana picks 12 pens in the morning and 7 in the evening. How many pens in total?"
FAILING_REWARD = """
calls = 0


def reward(prompt: str, completion: str, answer: str) -> float:
    global calls
    calls += 1
    if calls > 20:
        raise RuntimeError("the judge is out of ink")
    return 1.0
"""
# A run that only has to be there while somebody clicks, and leaves the machine to them.
SLOW_REWARD = """
import time


def reward(prompt: str, completion: str, answer: str) -> float:
    time.sleep(0.1)
    return float(answer in completion)
"""


def launch_sweep_of_two(page: Page) -> str:
    """Make a sweep over two seeds of what stands in the form, one run at once; return the address of its page."""
    page.locator("[data-sweep-toggle]").click()
    page.locator('[name="sweep.knobs.0.id"]').fill("train.seed")
    page.locator('[name="sweep.knobs.0.values"]').fill("0 1")
    page.get_by_role("button", name="Launch 2 runs, 1 at once").click()
    page.wait_for_url(re.compile(r"/tune/s-[0-9a-f]+$"), timeout=200_000)
    expect(page.locator("tr[data-run]")).to_have_count(2)
    return page.url


def two_more_steps(page: Page) -> None:
    """Wait until the page has two steps more than now."""
    until(page, f"({STEPS}).length >= {len(page.evaluate(STEPS)) + 2}", seconds=240)


@pytest.mark.slow("a whole run in a browser, and a trial of its model")
def test_a_person_launches_watches_tries_and_downloads(page: Page, stack: Stack, tmp_path: Path) -> None:
    every = {"eval__every_steps": str(STEPS_OF_FIRST), "checkpoint__every_steps": str(STEPS_OF_FIRST // 2)}
    fill_small_run(page, stack, name="first run", steps=STEPS_OF_FIRST, **every)
    launch(page)
    page.evaluate("window.isSamePage = true")

    expect(state(page)).to_contain_text("running", timeout=START_MS)
    num_seen = until(page, f"({STEPS}).length >= 2 && ({STEPS}).length", seconds=START_MS / 1000)
    expect(state(page)).to_contain_text("finished", timeout=END_MS)
    assert page.evaluate("window.isSamePage"), "the page must grow without a reload"
    steps = page.evaluate(STEPS)
    assert steps == list(range(1, STEPS_OF_FIRST + 1)), "every step once"
    assert num_seen < len(steps)

    page.reload()
    until(page, f"({STEPS}).length == {STEPS_OF_FIRST}")

    page.get_by_role("link", name=re.compile("^Files")).click()
    row = page.get_by_role("row", name=re.compile("model-final.zip"))
    with page.expect_download() as waiting:
        row.get_by_role("link", name="Download").click()
    archive = tmp_path / "model.zip"
    waiting.value.save_as(archive)

    box = page.locator("[data-tryit]:visible")
    box.get_by_label("Prompt for the trained model").fill(PROMPT)
    box.get_by_role("button", name="Ask").click()
    answer = box.locator('[data-part="answer"]')
    expect(answer).to_contain_text(re.compile(r"\S"), timeout=START_MS)
    assert answer.inner_text().strip() == greedy_answer(archive, tmp_path / "model", PROMPT)
    model_of_a_checkpoint(page, tmp_path, step=STEPS_OF_FIRST // 2)


def model_of_a_checkpoint(page: Page, tmp_path: Path, *, step: int) -> None:
    """Have a model made of a checkpoint, download it, and hold what it says against plain transformers."""
    row = page.locator("[data-files] tr", has_text=f"checkpoint-{step}")
    row.get_by_role("button", name=f"Make a model of checkpoint {step}").click()
    expect(row).to_contain_text(re.compile("model: (waiting|is being made)"))
    link = row.get_by_role("link", name="Download model")
    expect(link).to_be_visible(timeout=START_MS)
    with page.expect_download() as waiting:
        link.click()
    archive = tmp_path / "checkpoint.zip"
    waiting.value.save_as(archive)

    box = page.locator("[data-tryit]:visible")
    box.get_by_label("Model to ask").select_option(f"model-step-{step}.zip")
    box.get_by_role("button", name="Ask").click()
    expect(box.locator('[data-part="state"]')).to_contain_text("answered in", timeout=START_MS)
    said = box.locator('[data-part="answer"]').inner_text().strip()
    assert said == greedy_answer(archive, tmp_path / "checkpoint", PROMPT)


def greedy_answer(archive: Path, folder: Path, prompt: str) -> str:
    """Return what plain transformers says to `prompt` with the downloaded model, decoding greedily."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = model.generate(**ids, do_sample=False, max_new_tokens=256)
    text = tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    return str(text).strip()


@pytest.mark.proof
@pytest.mark.slow("two runs of a sweep in a browser")
def test_a_running_run_of_a_sweep_is_recorded_and_stops_with_a_checkpoint_and_leaves_nothing(
    page: Page, stack: Stack, tmp_path: Path
) -> None:
    never = {"checkpoint__every_steps": "0", "eval__every_steps": "0"}
    fill_small_run(page, stack, name="to be stopped", steps=5000, layout="split", **never)
    fill_reward(page, SLOW_REWARD)
    sweep = launch_sweep_of_two(page)
    first, second = page.locator("tr[data-run]").all()
    run_id = first.get_attribute("data-run")
    expect(first.locator(".state")).to_contain_text("running", timeout=START_MS)
    expect(second).to_contain_text("Waits for its sweep: 1 of 1 at once are running")
    page.goto(f"{stack.url}/runs/{run_id}")
    until(page, f"({STEPS}).length >= 2", seconds=START_MS / 1000)
    page.evaluate("window.isSamePage = true")

    recording.record_by_time(page, meanwhile=lambda: two_more_steps(page))
    recording.check_torch_zip(page, tmp_path / "by-time")
    recording.withdraw_a_capture(page)
    assert page.evaluate("window.isSamePage"), "captures must come without a reload"
    cancel_one_that_waits(page, stack, behind=str(run_id))
    page.goto(f"{stack.url}/runs/{run_id}")

    page.locator('[data-action="stop"]').click()
    page.locator('[data-action="stop-now"]').click()
    expect(state(page)).to_contain_text(re.compile("stop"))
    page.goto(sweep)
    page.get_by_role("button", name="Stop all").first.click()
    page.locator("[data-stop-now]").click()
    expect(page.locator("tr[data-run]").last.locator(".state")).to_contain_text("stopped", timeout=STOP_MS)
    page.goto(f"{stack.url}/runs/{run_id}")

    expect(state(page)).to_contain_text("stopped", timeout=STOP_MS)
    saved = page.get_by_text(re.compile(r"after step \d+, with a checkpoint"))
    expect(saved.filter(visible=True).first).to_be_visible()
    page.goto(f"{stack.url}/runs/{run_id}/files")
    expect(page.get_by_role("row", name=re.compile("model-final.zip"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(r"checkpoint-\d+"))).to_be_visible()
    page.goto(f"{stack.url}/cluster")
    expect(page.get_by_text("Every ended run has confirmed that none of its processes are left.")).to_be_visible()


def cancel_one_that_waits(page: Page, stack: Stack, *, behind: str) -> None:
    """Launch a run that finds too little free beside `behind`; see why it waits, and cancel it in the queue."""
    fill_small_run(page, stack, name="waits", steps=2, ranks="4", layout="split")
    waiting = launch(page)
    expect(page.locator('[data-field="wait"]')).to_contain_text(re.compile(f"Needs 6 CPUs.*{behind}"), timeout=120_000)
    page.locator('[data-action="stop"]').click()
    page.locator('[data-action="stop-now"]').click()
    expect(state(page)).to_contain_text("stopped", timeout=90_000)
    assert not (stack.data_dir / "runs" / waiting).exists(), "nothing of a cancelled run was started"


@pytest.mark.proof
@pytest.mark.slow("a whole run under nsys in a browser")
def test_the_timing_of_a_step_is_recorded_by_nsys_and_read_on_its_timeline(
    page: Page, stack: Stack, tmp_path: Path
) -> None:
    never = {"checkpoint__every_steps": "0", "eval__every_steps": "0"}
    fill_small_run(page, stack, name="under nsys", steps=5000, nsys_ready="on", layout="split", **never)
    launch(page)
    until(page, f"({STEPS}).length >= 2", seconds=START_MS / 1000)
    page.get_by_role("link", name=re.compile("^Profile")).click()

    if recording.record_with_nsys(page):
        recording.check_nsys_report(page, tmp_path / "nsys")
        recording.look_at_the_timeline(recording.open_timeline(page), kind="nsys")

    page.locator('[data-action="stop"]').click()
    page.locator('[data-action="stop-now"]').click()
    expect(state(page)).to_contain_text("stopped", timeout=STOP_MS)


@pytest.mark.proof
@pytest.mark.slow("a real run of the longest samples")
def test_a_probe_goes_to_the_greatest_lengths_and_its_peaks_stand_beside_the_plan(page: Page, stack: Stack) -> None:
    longest = {"rollout__max_new_tokens": "24"}
    fill_small_run(page, stack, name="to be probed", steps=5000, ranks="1", layout="split", **longest)
    page.locator("[data-probe]").click()
    page.wait_for_url(re.compile(r"/runs/r-[0-9a-f]+$"), timeout=200_000)
    run = page.url.rsplit("/", 1)[1]

    expect(state(page)).to_contain_text("finished", timeout=START_MS + END_MS)

    asked = page.request.get(
        f"{stack.url}/api/runs/{run}/series?metrics=response/length_mean,response/truncated_fraction"
    )
    found = {each["name"]: (each["x"], each["y"]) for each in asked.json()["series"]}
    assert found == {  # its end token is passed over: every answer is as long as the longest
        "response/length_mean": ([1, 2, 3, 4], [24.0] * 4),
        "response/truncated_fraction": ([1, 2, 3, 4], [1.0] * 4),
    }
    plan = page.request.get(f"{stack.url}/api/runs/{run}/plan").json()
    peaks = {(row["role"], row["phase"]): row["measured"] for row in plan["rows"] if row["quantity"] == "bytes"}
    for who in (("policy", "update"), ("reference", "reference"), ("vllm", "rollout")):
        assert peaks[who], who
    assert not any("tokens long in the mean" in note for note in plan["notes"]), plan["notes"]


@pytest.mark.proof
@pytest.mark.slow("a real run to its failure")
def test_a_failing_run_names_its_cause_on_the_page(page: Page, stack: Stack) -> None:
    alone = {"eval__every_steps": "0", "algorithm__kl_coefficient": "0"}
    fill_small_run(page, stack, name="fails", steps=50, ranks="1", **alone)
    fill_reward(page, FAILING_REWARD)
    launch(page)

    expect(state(page)).to_contain_text("failed", timeout=START_MS)
    cause = page.locator('[data-field="cause"]')
    expect(cause).to_contain_text("judge.py")
    expect(cause).to_contain_text("the judge is out of ink")
