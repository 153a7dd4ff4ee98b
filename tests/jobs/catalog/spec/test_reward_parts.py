"""Mixed rewards in a spec: old specs stay what they were, and what cannot score is refused at its own field."""

import json

import pytest

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.reward_parts import address_problem, part_names
from jobs.catalog.spec.runspec import RewardPart, to_json

OTHER = {"trainer": {"name": "verl"}, "model": {"kind": "hub", "id": "Qwen/Qwen2.5-7B"}}


def problems_of(raw: object) -> dict[str, str]:
    with pytest.raises(SpecInvalid) as caught:
        parse_spec(raw)
    return {p.field: p.message for p in caught.value.problems}


def test_a_spec_of_before_mixing_is_one_part_that_counts_once() -> None:
    spec = parse_spec({"version": 1, "reward": {"kind": "format", "source": "", "file_name": "", "location": ""}})

    assert [(part.kind, part.weight) for part in spec.reward.parts] == [("format", 1.0)]


def test_a_mix_survives_json() -> None:
    more = [{"kind": "format", "weight": 0.2, "name": "form"}, {"kind": "custom", "source": "def reward(p, c, a): ..."}]
    spec = parse_spec({"reward": {"kind": "math", "weight": 2, "more": more}})

    assert [(part.kind, part.weight) for part in spec.reward.parts] == [("math", 2), ("format", 0.2), ("custom", 1.0)]
    assert parse_spec(json.loads(json.dumps(to_json(spec)))) == spec


def test_parts_are_called_by_their_name_or_kind_and_those_of_a_kind_are_numbered() -> None:
    parts = [RewardPart(kind="custom"), RewardPart(kind="format", name="form"), RewardPart(kind="custom")]

    assert part_names(parts) == ("custom", "form", "custom_2")


@pytest.mark.parametrize(
    ("reward", "field", "says"),
    [
        ({"more": "math"}, "reward.more", "'math' is not a list of further rewards."),
        ({"more": [{}] * 8}, "reward.more", "at most 7 objects"),
        ({"more": [3]}, "reward.more.0", "is an object of fields, not 3"),
        ({"more": [{"kind": "maths"}]}, "reward.more.0.kind", "'maths' is not allowed. Use one of math,"),
        ({"more": [{"kind": "format", "wieght": 1}]}, "reward.more.0.wieght", "Did you mean weight?"),
        ({"more": [{"kind": "format", "weight": "a"}]}, "reward.more.0.weight", "Use a number from -1,000 to 1,000."),
        ({"more": [{"kind": "format", "weight": 1e9}]}, "reward.more.0.weight", "Use a number from -1,000 to 1,000."),
        ({"weight": float("nan")}, "reward.weight", "nan is not allowed."),
        ({"weight": 0.0, "more": [{"kind": "format", "weight": 0.0}]}, "reward.weight", "nothing is learned"),
        ({"more": [{"kind": "custom"}]}, "reward.more.0.source", "needs its Python file"),
        ({"more": [{"kind": "file", "location": "/x.py"}]}, "reward.more.0.kind", "cannot score by file"),
        ({"kind": "model"}, "reward.location", "Name the model that scores"),
        (
            {"more": [{"kind": "model", "location": "/a"}, {"kind": "model", "location": "/b", "name": "b"}]},
            "reward.more.1.kind",
            "one reward model",
        ),
        ({"name": "Mean"}, "reward.name", "cannot name a reward"),
        ({"name": "mean"}, "reward.name", "but none of mean, std"),
        ({"name": "a", "more": [{"kind": "format", "name": "a"}]}, "reward.more.0.name", "Two rewards are called a."),
        ({"kind": "judge", "location": "http://host"}, "knobs.reward.judge_model", "Name the model"),
        ({"kind": "judge", "location": "http://u:p@host", "source": "Hm?"}, "reward.source", "has no {completion}"),
        ({"kind": "url", "location": "gopher://host"}, "reward.location", "is not an http or https address"),
        ({"kind": "url"}, "reward.location", "Name the URL that scores"),
        ({"kind": "math"}, "data.answer_column", "The math reward compares with an answer."),
        ({"kind": "code"}, "data.answer_column", "The code reward runs tests. Name the column that holds them."),
        ({"token_env": "HF_TOKEN"}, "reward.token_env", "begins with REWARD_"),
        ({"token_env": "REWARD_X=1"}, "reward.token_env", "'REWARD_X=1' cannot hold"),
    ],
)
def test_what_cannot_score_is_refused_at_its_field(reward: dict[str, object], field: str, says: str) -> None:
    data = {"answer_column": ""} if field.startswith("data.") else {}
    assert says in problems_of({"reward": reward, "data": data})[field]


@pytest.mark.parametrize(
    ("reward", "field"),
    [
        ({"more": [{"kind": "format"}]}, "reward.more"),
        ({"weight": 0.5}, "reward.weight"),
        ({"kind": "judge", "location": "http://host"}, "reward.kind"),
        ({"kind": "code"}, "reward.kind"),
        ({"token_env": "REWARD_TOKEN"}, "reward.token_env"),
    ],
)
def test_other_trainers_are_not_told_what_they_cannot_do(reward: dict[str, object], field: str) -> None:
    assert "verl" in problems_of(OTHER | {"reward": reward})[field]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ftp://host/x", "is not an http or https address"),
        ("file:///etc/passwd", "is not an http or https address"),
        ("rewards.example.org/score", "is not an http or https address"),
        ("http:///score", "is not an http or https address"),
        ("http://host:0/x", "is not an http or https address"),
        ("http://host/a b", "is not an http or https address"),
        ("http://host:99999/", "is no address"),
        ("http://[::1", "is no address"),
        ("http://me:secret@host/", "kept in the run's settings"),
        ("http://secret@host/", "kept in the run's settings"),
        ("http://host/#part", "behind #"),
        ("http://169.254.169.254/latest/meta-data", "link-local"),
        ("http://[fe80::1%25eth0]/", "link-local"),
        ("http://metadata.google.internal/x", "link-local"),
    ],
)
def test_addresses_that_must_not_be_called(address: str, says: str) -> None:
    problem = address_problem(address)

    assert problem is not None
    assert says in str(problem)
    assert "secret" not in str(problem)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:8000/score", "https://api.example.org/v1", " http://gpu-3/x?v=1 "]
)
def test_addresses_that_may_be_called(address: str) -> None:
    assert address_problem(address) is None


@pytest.mark.parametrize("layout", ["split", "shared", "colocated"])
def test_a_reward_model_of_any_part_is_a_role_of_the_run(layout: str) -> None:
    mixed = {"kind": "math", "more": [{"kind": "format"}, {"kind": "model", "location": "/rm"}]}

    spec = parse_spec({"algorithm": "grpo", "reward": mixed, "hardware": {"layout": layout}})

    assert spec.needs("reward")
    assert spec.reward_model == "/rm"
    assert spec.values()["reward.model_path"] == "/rm"
    assert spec.workers.get("reward") == (1 if layout == "split" else None)
    assert not parse_spec({"algorithm": "grpo"}).needs("reward")
