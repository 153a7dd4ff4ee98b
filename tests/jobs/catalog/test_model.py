"""Models that are known without a hub: every file is read, every repository leads to one model."""

import json
from collections import Counter
from importlib.resources import files

import pytest

from jobs.catalog.model import find_model, models


def test_every_file_is_read() -> None:
    folder = files("jobs.catalog") / "models"
    stored = sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
    assert stored == sorted(models())
    assert len(stored) >= 45


def test_a_repository_belongs_to_one_model_and_leads_to_it() -> None:
    owners = Counter(hub.lower() for model in models().values() for hub in model.hub)
    assert [hub for hub, count in owners.items() if count > 1] == []
    for model in models().values():
        assert find_model(model.id) == model
        for hub in model.hub:
            assert find_model(hub).id == find_model(hub.upper()).id == find_model(hub.partition("/")[2]).id == model.id


def test_a_model_says_what_it_is_and_where_that_was_read() -> None:
    labels = [model.label for model in models().values()]
    assert len(set(labels)) == len(labels)
    assert all(model.label and model.source and model.config["model_type"] for model in models().values())


def test_a_repository_may_have_a_context_of_its_own() -> None:
    assert find_model("Qwen/Qwen2.5-7B").config["max_position_embeddings"] == 131_072
    own = find_model("Qwen/Qwen2.5-7B-Instruct")
    assert own.config["max_position_embeddings"] == 32_768
    assert {**own.config, "max_position_embeddings": 131_072} == models()["qwen2.5-7b"].config


def test_the_model_that_comes_with_the_project_is_read_from_its_own_files() -> None:
    path = files("jobs") / "engine" / "bundled" / "tiny-word-problems" / "config.json"
    assert find_model("tiny-word-problems").config == json.loads(path.read_text(encoding="utf-8"))


def test_a_key_that_is_null_can_be_said() -> None:
    config = find_model("deepseek-v2-lite").config
    assert "q_lora_rank" in config
    assert config["q_lora_rank"] is None


@pytest.mark.parametrize(("name", "nearest"), [("qwen3-8", "qwen3-8b"), ("lama-3.1-8b", "llama-3.1-8b")])
def test_a_model_that_is_not_known_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(LookupError, match=f"is not a known model. The nearest is {nearest}"):
        find_model(name)


@pytest.mark.parametrize("name", ["nosuch", "7B", "模型"])
def test_nothing_is_offered_for_a_name_that_is_like_none(name: str) -> None:
    with pytest.raises(LookupError, match=f"'{name}' is not a known model. None has a similar name: its config"):
        find_model(name)
