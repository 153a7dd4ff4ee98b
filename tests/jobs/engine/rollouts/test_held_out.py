"""Held-out sets: where they are read from, when they are evaluated, what they tell, and which number is the best."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.text import TextModel
from jobs.engine.problem import RunProblem
from jobs.engine.rewards.exact_match import ExactMatchReward
from jobs.engine.rollouts.evaluation import evaluate_sets
from jobs.engine.rollouts.held_out import own_set, ranking_score, read_sets, require_best_metric
from jobs.engine.rollouts.request import GenerationRequest, SampledResponse

TEXT = TextModel(BUNDLED / "tiny-word-problems")


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    file = tmp_path / "hard.jsonl"
    file.write_text("".join(json.dumps({"question": f"{i}+1?", "solution": str(i + 1)}) + "\n" for i in range(5)))
    return file


def spec(knobs: dict[str, Any] | None = None, algorithm: str = "grpo", **sets: dict[str, Any]) -> RunSpec:
    return parse_spec({"algorithm": algorithm, "knobs": knobs or {}, "data": {"eval_sets": sets}})


def test_a_set_has_its_own_rows_columns_schedule_and_samples(hard: Path) -> None:
    made = spec(
        {"eval.samples_per_prompt": 4, "eval.temperature": 0.7, "eval.num_prompts": 3},
        hard={"id": str(hard), "every_steps": 50, "num_prompts": 2, "samples_per_prompt": 8, "temperature": 1.0},
        plain={"id": str(hard), "prompt_column": "question", "answer_column": "question"},
    )

    own, (first, second) = own_set(made, []), read_sets(made, TEXT)

    assert [(e.prompt, e.answer) for e in first.examples] == [("0+1?", "1"), ("1+1?", "2")]
    assert (first.samples_per_prompt, first.temperature) == (8, 1.0)
    assert [step for step in (20, 50, 60, 100) if first.is_due(step, usual=20)] == [50, 100]
    assert [e.answer for e in second.examples] == ["0+1?", "1+1?", "2+1?"]
    for one in (own, second):
        assert (one.samples_per_prompt, one.temperature) == (4, 0.7)
        assert [step for step in (20, 50, 60, 100) if one.is_due(step, usual=20)] == [20, 60, 100]
    assert not own.is_due(20, usual=0)


def test_one_response_is_the_likeliest_unless_its_set_says_otherwise(hard: Path) -> None:
    made = spec(drawn={"id": str(hard), "temperature": 0.5})

    assert own_set(made, []).temperature == 0.0
    assert read_sets(made, TEXT)[0].temperature == 0.5


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"id": "/nowhere/x.jsonl"}, "The held-out set hard: There is no file"),
        ({"id": "HERE", "prompt_column": "frage"}, "The held-out set hard: The data has no column 'frage'"),
    ],
)
def test_a_set_that_cannot_be_read_is_named(hard: Path, part: dict[str, Any], said: str) -> None:
    made = spec(hard={**part, "id": str(hard) if part["id"] == "HERE" else part["id"]})

    with pytest.raises(RunProblem) as caught:
        read_sets(made, TEXT)

    assert caught.value.field == "data.eval_sets"
    assert caught.value.message.startswith(said)


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([], "The field is []. Use a JSON object such as"),
        ({"Hard!": {"id": "a.jsonl"}}, "A name is 'Hard!'. Use up to 40 of a-z"),
        ({"hard": "a.jsonl"}, "hard is 'a.jsonl'. Use a JSON object"),
        ({"hard": {}}, "hard.id is ''. Use a path, a hub id"),
        ({"hard": {"id": "a.txt"}}, "hard.id is 'a.txt'. Use a path that ends in"),
        ({"hard": {"id": "a", "kind": "upload"}}, "hard.kind is 'upload'. Use one of bundled, path, hub."),
        ({"hard": {"id": "a.jsonl", "every": 5}}, "A key of hard is 'every'. Use one of kind, id,"),
        ({"hard": {"id": "a.jsonl", "every_steps": 1.5}}, "hard.every_steps is 1.5. Use a whole number from 0"),
        ({"hard": {"id": "a.jsonl", "temperature": "hot"}}, "hard.temperature is 'hot'. Use a number from 0 to 5."),
        ({"hard": {"id": "a.jsonl", "samples_per_prompt": True}}, "hard.samples_per_prompt is True."),
    ],
)
def test_what_is_no_set_is_refused_in_a_sentence(sets: object, said: str) -> None:
    with pytest.raises(SpecInvalid) as caught:
        parse_spec({"data": {"eval_sets": sets}})

    (problem,) = caught.value.problems
    assert problem.field == "data.eval_sets"
    assert str(problem.message).startswith(said)


class Engines:
    """Answer each prompt with the texts that a script has for it, in turn, and note how they were asked."""

    generators: Sequence[Any] = ()
    role = "policy"

    def __init__(self, *texts: str) -> None:
        self._texts, self.temperatures, self.policies = texts, list[float | None](), [self]

    def call(self, method: str, requests: Sequence[GenerationRequest], *, temperature: float | None, **_: Any) -> Any:
        assert method == "generate"
        self.temperatures.append(temperature)
        said = [self._texts[i % len(self._texts)] for i in range(len(requests))]
        return [SampledResponse(tokens=tuple(TEXT.encode(s)), logprobs=(), is_truncated=False) for s in said]

    def gather(self, calls: Sequence[Any]) -> Sequence[Any]:
        return calls


def test_an_evaluation_tells_each_set_by_its_name(hard: Path) -> None:
    made = spec(
        {"eval.samples_per_prompt": 2},
        hard={"id": str(hard), "num_prompts": 1, "samples_per_prompt": 4, "temperature": 1.0},
    )
    (named,) = read_sets(made, TEXT)
    own = own_set(made, named.examples)
    engines: Any = Engines("1", "1", "2", "3")

    found = evaluate_sets(engines, [own, named], reward=ExactMatchReward(), text=TEXT, step=3)

    assert engines.temperatures == [0.6, 1.0]
    assert found.metrics == pytest.approx(
        {
            "eval/reward": 1.0,
            "eval/accuracy": 1.0,
            "eval/pass_at_2": 1.0,
            "eval/maj_at_2": 1.0,
            "eval/hard/reward": 0.5,
            "eval/hard/accuracy": 0.5,
            "eval/hard/pass_at_2": 1 - 1 / 6,
            "eval/hard/pass_at_4": 1.0,
            "eval/hard/maj_at_4": 1.0,
        }
    )
    assert (found.score, len(found.samples)) == (1.0, 2)


def test_the_best_is_by_the_metric_and_the_direction_that_the_run_names(hard: Path) -> None:
    metrics = {"eval/loss": 2.0, "eval/hard/accuracy": 0.25}

    def score(metric: str = "", direction: str = "auto") -> float | None:
        knobs = {"checkpoint.best_metric": metric, "checkpoint.best_direction": direction}
        return ranking_score(spec(knobs, hard={"id": str(hard)}), metrics, usual=0.5)

    assert score() == 0.5
    assert score("eval/hard/accuracy") == 0.25
    assert score("eval/loss") == -2.0
    assert score("eval/loss", "higher") == 2.0
    assert score("eval/hard/accuracy", "lower") == -0.25
    assert score("eval/reward") is None  # this evaluation was of other sets
    assert score("none") is None


def test_a_best_metric_that_no_evaluation_has_is_refused(hard: Path) -> None:
    with pytest.raises(SpecInvalid, match=r"checkpoint.best_metric: 'eval/easy/accuracy' is no number"):
        spec({"checkpoint.best_metric": "eval/easy/accuracy"}, hard={"id": str(hard)})
    with pytest.raises(RunProblem, match=r"No evaluation of this run has 'eval/pass_at_3'. There is: eval/reward."):
        require_best_metric(spec({"checkpoint.best_metric": "eval/pass_at_3"}), {"eval/reward": 1.0})
    require_best_metric(spec(), {})
