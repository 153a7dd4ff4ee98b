"""Trying a trained model on one prompt, as its own process, with the bundled model as the trained one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.runner.console_client.zip_image import zip_image
from jobs.runner.prompt_model import data_of
from profiling import events
from tests.jobs.runner.conftest import REPOSITORY, House
from tests.jobs.runner.fake_console import FakeConsole

MODEL = REPOSITORY / "jobs" / "engine" / "bundled" / "tiny-word-problems"
PROMPT = "Tom has 3 apples and buys 4 more. How many apples does he have?"


def hold(console: FakeConsole, name: str, folder: Path) -> None:
    """Make the console hold the folder as a ready artifact."""
    image = zip_image(folder)
    console.files[name] = bytearray(image.read(0, image.size))
    console.ready.add(name)


@pytest.fixture
def ask(house: House, warm_environment: dict[str, str]) -> Callable[..., dict[str, object]]:
    """Let a job of the run answer the prompt by a file of the console."""

    def answer(artifact: str = "model-final.zip") -> dict[str, object]:
        asked = {"PITWALL_ANSWER": 5, "PITWALL_ARTIFACT": artifact, "PITWALL_PROMPT": PROMPT}
        # With two threads torch spins as soon as others use the cores, too.
        house.finish(house.start("jobs.runner.prompt_model", **asked, **warm_environment, OMP_NUM_THREADS=1))
        return house.console.answers["5"]

    return answer


def test_the_model_answers_the_same_from_the_console_and_from_the_run_directory(
    house: House, console: FakeConsole, ask: Callable[..., dict[str, object]]
) -> None:
    hold(console, "model-final.zip", MODEL)

    from_console = ask()
    console.answers.clear()
    console.ready.clear()
    shutil.copytree(MODEL, house.run_dir / "model" / "final")
    log = events.EventLog(house.run_dir / "events.jsonl")
    log.write(events.artifact("model-final", artifact="model", path="model/final", attempt=1))
    log.close()
    from_run_directory = ask()

    assert from_console == from_run_directory
    assert "problem" not in from_console, from_console["problem"]
    token_ids = from_console["token_ids"]
    assert isinstance(token_ids, list)
    assert 0 < len(token_ids) <= 256
    assert from_console["text"]


def test_the_data_section_of_the_first_spec_that_is_there_says_how_prompts_were_made(tmp_path: Path) -> None:
    broken, whole = tmp_path / "a.json", tmp_path / "b.json"
    broken.write_text('{"data": 3}')
    whole.write_text('{"data": {"system_prompt": "Be brief.", "chat_template_kwargs": {"enable_thinking": false}}}')

    found = data_of(tmp_path / "none.json", broken, whole)

    assert found == {"system_prompt": "Be brief.", "chat_template_kwargs": {"enable_thinking": False}}
    assert data_of(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("artifact", "content", "problem"),
    [
        ("model-best.zip", None, "The console has no ready file model-best.zip."),
        ("model-final.zip", {"readme.txt": "hello"}, "model-final.zip holds no config.json"),
        (
            "model-final.zip",
            {"config.json": '{"model_type": "dance"}'},
            "The model in model-final.zip could not answer:",
        ),
    ],
)
def test_what_cannot_answer_is_said_in_a_sentence(
    console: FakeConsole,
    ask: Callable[..., dict[str, object]],
    tmp_path: Path,
    artifact: str,
    content: dict[str, str] | None,
    problem: str,
) -> None:
    if content is not None:
        (tmp_path / "made").mkdir()
        for name, text in content.items():
            (tmp_path / "made" / name).write_text(text)
        hold(console, artifact, tmp_path / "made")

    answer = ask(artifact)

    assert str(answer["problem"]).startswith(problem), json.dumps(answer)
    assert "text" not in answer
