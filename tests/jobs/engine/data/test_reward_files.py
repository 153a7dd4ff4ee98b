"""Which folders can be the reward model of a run, and what is said of the others before anything is loaded."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.reward_files import check_reward_model, reward_folder
from jobs.engine.problem import RunProblem

ONE = {"id2label": {"0": "reward"}}


def judged_by(place: Path, *, is_beside: bool = False) -> RunSpec:
    part = {"kind": "model", "location": str(place)}
    return parse_spec({"algorithm": "grpo", "reward": {"kind": "format", "more": [part]} if is_beside else part})


def folder(place: Path, **config: Any) -> Path:
    """A copy of the bundled model whose configuration says other things."""
    shutil.copytree(BUNDLED / "tiny-word-problems", place)
    own = json.loads((place / "config.json").read_text())
    said = own | {"architectures": ["Qwen2ForSequenceClassification"]} | config
    (place / "config.json").write_text(json.dumps(said))
    return place


@pytest.mark.parametrize("config", [ONE, {"num_labels": 1}])
def test_a_folder_of_one_label_and_the_policys_tokens_is_taken(tmp_path: Path, config: dict[str, Any]) -> None:
    place = folder(tmp_path / "rm", **config)

    check_reward_model(judged_by(place))

    assert reward_folder(judged_by(place, is_beside=True)) == place


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, "its config.json names Qwen2ForCausalLM. Use a folder of a"),
        ({"architectures": []}, "its config.json names no architecture"),
        ({}, "tells 2 classes apart"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "tells 3 classes apart"),
    ],
)
def test_another_kind_of_model_is_refused_at_the_part_that_names_it(
    tmp_path: Path, config: dict[str, Any], says: str
) -> None:
    place = folder(tmp_path / "rm", **config)

    with pytest.raises(RunProblem) as first:
        check_reward_model(judged_by(place))
    with pytest.raises(RunProblem) as second:
        check_reward_model(judged_by(place, is_beside=True))

    assert says in first.value.message
    assert (first.value.field, second.value.field) == ("reward.location", "reward.more.0.location")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunProblem, match="The reward model: There is no folder") as refused:
        check_reward_model(judged_by(tmp_path / "none"))

    assert refused.value.field == "reward.location"


def test_another_vocabulary_is_refused_with_tokens_that_differ(tmp_path: Path) -> None:
    place = folder(tmp_path / "rm", **ONE)
    table = json.loads((place / "tokenizer.json").read_text())
    table["added_tokens"] += [{"content": "<|judge|>", "id": 999}]
    (place / "tokenizer.json").write_text(json.dumps(table))

    with pytest.raises(RunProblem, match="1 have other ids, such as '<|judge|>'".replace("|", r"\|")) as refused:
        check_reward_model(judged_by(place))

    assert "another vocabulary than the policy" in refused.value.message
