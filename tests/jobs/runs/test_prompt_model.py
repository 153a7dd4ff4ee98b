"""Trying a trained model: what may be asked, and that the first word holds."""

from typing import Any

import pytest

from jobs.models import Answer
from jobs.runs import prompt_model as answer
from tests.rows import NOW, make_artifact, make_run

pytestmark = pytest.mark.django_db


def ask(prompt: str = "1+1?", **fields: Any) -> Answer:
    artifact = make_artifact(make_run(state="finished"), **fields)
    return answer.ask(artifact=artifact, prompt=prompt, user=None, now=NOW)


def test_a_prompt_is_queued_under_a_name_of_its_own() -> None:
    asked = ask()

    assert asked.state == "queued"
    assert asked.submission_id.startswith(f"answer-{asked.run_id}-")


@pytest.mark.parametrize(
    ("prompt", "fields", "field", "words"),
    [
        ("  ", {}, "prompt", "empty"),
        ("x" * 8001, {}, "prompt", "Use at most 8,000"),
        ("hi", {"type": "checkpoint"}, "artifact", "is not a model"),
        ("hi", {"is_ready": False}, "artifact", "still being copied"),
    ],
)
def test_what_cannot_be_asked_is_refused(prompt: str, fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(answer.PromptRefused, match=words) as caught:
        ask(prompt, **fields)

    assert caught.value.field == field
    assert not Answer.objects.exists()


def test_a_reward_model_is_not_asked() -> None:
    artifact = make_artifact(make_run(state="finished", spec={"algorithm": "rm"}))

    with pytest.raises(answer.PromptRefused, match="scores responses and gives none"):
        answer.ask(artifact=artifact, prompt="1+1?", user=None, now=NOW)


def test_one_prompt_of_a_run_waits_at_a_time() -> None:
    first = ask()

    with pytest.raises(answer.PromptRefused, match="still being answered") as caught:
        answer.ask(artifact=first.artifact, prompt="again", user=None, now=NOW)

    assert caught.value.is_busy


def test_the_first_word_holds() -> None:
    asked = ask()

    assert settle(asked, text="2", token_ids=[5, 6])
    assert not settle(asked, problem="late")

    asked.refresh_from_db()
    assert (asked.state, asked.text, asked.token_ids, asked.problem) == ("finished", "2", [5, 6], "")


def test_a_problem_settles_it_as_failed() -> None:
    asked = ask()

    assert settle(asked, problem="The model folder has no config.json")

    asked.refresh_from_db()
    assert (asked.state, asked.ended_at) == ("failed", NOW)


def test_an_answer_of_another_run_is_not_taken() -> None:
    asked = ask()

    assert not answer.settle(answer_id=asked.pk, run_id="r-other", text="2", token_ids=[], problem="", now=NOW)


def settle(asked: Answer, *, text: str = "", token_ids: Any = (), problem: str = "") -> bool:
    return answer.settle(
        answer_id=asked.pk, run_id=asked.run_id, text=text, token_ids=token_ids, problem=problem, now=NOW
    )
