"""A spec is complete, survives JSON, and everything wrong with it is said at once, field by field."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.catalog.knob import applicable, knobs
from jobs.catalog.spec.parse import MAX_STRANGERS, Problem, SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import KnobValue, RunSpec, differing, to_json, to_text

TEMPLATE = "data.chat_template_kwargs"
OTHER = {"trainer": {"name": "verl"}, "model": {"kind": "hub", "id": "Qwen/Qwen2.5-7B"}}


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def problems_of(raw: object) -> dict[str, str]:
    with pytest.raises(SpecInvalid) as caught:
        parse_spec(raw)
    return {p.field: p.message for p in caught.value.problems}


def test_a_gpu_has_defaults_of_its_own_and_a_cpu_those_of_a_device_that_is_not_known() -> None:
    on_gpu, on_cpu, named = (
        parse_spec({"hardware": {"device": "cuda"}}),
        parse_spec({"hardware": {"device": "cpu"}}),
        parse_spec({}, device="cuda"),
    )

    assert on_gpu.knob("memory.precision") == "bfloat16"
    assert on_gpu.knob("rollout.enforce_eager") is False
    assert differing(on_gpu) == {}
    assert on_cpu.knobs == parse_spec({}).knobs
    assert on_cpu.knob("memory.precision") == "float32"
    assert named == on_gpu
    assert parse_spec({"hardware": {"device": "cpu"}}, device="cuda") == on_cpu


def test_an_empty_spec_is_the_demo_and_complete() -> None:
    spec = parse_spec({})
    assert (spec.algorithm, spec.model.id, spec.data.id) == ("grpo", "tiny-word-problems", "word-problems")
    assert set(spec.knobs) == set(applicable("grpo", "native"))
    assert {value.origin for value in spec.knobs.values()} == {"default"}
    assert spec.num_workers == 2  # the policy ranks draw, and hold the reference


@pytest.mark.parametrize("algorithm", ["grpo", "sft"])
def test_json_both_ways_gives_the_same_spec(algorithm: str) -> None:
    spec = parse_spec({"algorithm": algorithm, "name": "née — 数学", "knobs": {"train.num_steps": 7}})
    assert parse_spec(json.loads(json.dumps(to_json(spec)))) == spec
    assert parse_spec(json.loads(to_text(spec))) == spec


def test_variables_of_the_chat_template_are_kept_as_they_are() -> None:
    variables = {"enable_thinking": False, "tools": [{"name": "é <x>"}], "n": [1, 2.5, None, {"deep": "数"}]}

    spec = parse_spec({"data": {"chat_template_kwargs": variables}})
    variables["tools"].clear()  # type: ignore[attr-defined]

    assert spec.data.chat_template_kwargs["tools"] == [{"name": "é <x>"}]
    assert parse_spec(json.loads(json.dumps(to_json(spec)))) == spec
    assert parse_spec(json.loads(to_text(spec))) == spec


def test_a_spec_of_before_there_were_such_variables_is_read_as_it_was() -> None:
    raw = to_json(parse_spec({}))
    for field in ("chat_template_kwargs", "tools_column"):
        del raw["data"][field]

    spec = parse_spec(raw)

    assert (dict(spec.data.chat_template_kwargs), spec.data.tools_column) == ({}, "tools")
    assert spec == parse_spec({})


def test_origins_are_kept_and_bare_values_are_yours() -> None:
    spec = parse_spec(
        {
            "knobs": {
                "train.seed": 3,
                "optimizer.learning_rate": {"value": 1e-5, "origin": "recipe"},
                "train.num_steps": 60,
            }
        }
    )
    assert spec.knobs["train.seed"] == KnobValue(value=3, origin="you")
    assert spec.knobs["optimizer.learning_rate"] == KnobValue(value=1e-5, origin="recipe")
    assert set(differing(spec)) == {"train.seed", "optimizer.learning_rate"}


@pytest.mark.parametrize(
    ("raw", "field", "says"),
    [
        ({"algoritm": "grpo"}, "algoritm", "Did you mean algorithm?"),
        (
            {"knobs": {"optimizer.learning_rte": 1}},
            "knobs.optimizer.learning_rte",
            "Did you mean optimizer.learning_rate?",
        ),
        ({"knobs": {"optimizer.lr": 1}}, "knobs.optimizer.lr", "Did you mean optimizer.learning_rate?"),
        ({"model": {"kind": "zip"}}, "model.kind", "Use one of bundled, path, hub."),
        ({"model": {"nme": "x"}}, "model.nme", "There is no field 'nme'."),
        ({"model": {"kind": "path", "id": "  "}}, "model.id", "a path on the cluster"),
        ({"data": {"kind": "path", "id": "/data/train.xlsx"}}, "data.id", "no JSONL, JSON, CSV or Parquet"),
        ({"data": {"kind": "upload", "id": "upload:abc"}}, "data.id", "Upload it again"),
        ({"data": {"answer_column": ""}}, "data.answer_column", "compares with an answer"),
        ({"data": {"eval_share": 0.9}}, "data.eval_share", "from 0 to 0.5"),
        ({"data": {"chat_template_kwargs": "no"}}, TEMPLATE, "'no' is not a JSON object. Use one such as {"),
        ({"data": {"chat_template_kwargs": None}}, TEMPLATE, "null is not a JSON object."),
        (
            {"data": {"chat_template_kwargs": {"messages": []}}},
            TEMPLATE,
            "'messages' cannot be a variable of a chat template.",
        ),
        ({"data": {"chat_template_kwargs": {"a b": 1}}}, TEMPLATE, "'a b' cannot be a variable"),
        ({"data": {"chat_template_kwargs": {"a": float("nan")}}}, TEMPLATE, "value of a cannot be kept as JSON"),
        ({"data": {"chat_template_kwargs": {"a": [2**60]}}}, TEMPLATE, "value of a cannot be kept as JSON"),
        ({"data": {"chat_template_kwargs": {"a": {"b": "\0"}}}}, TEMPLATE, "value of a cannot be kept as JSON"),
        ({"data": {"chat_template_kwargs": {"a": nested(50_000)}}}, TEMPLATE, "at most 16 in each other"),
        ({"data": {"chat_template_kwargs": {"tools": "all"}}}, TEMPLATE, "tools is a list of objects, not 'all'."),
        (
            {"data": {"chat_template_kwargs": {"documents": ["x"]}}},
            TEMPLATE,
            "documents is a list of objects, not ['x'].",
        ),
        ({"data": {"chat_template_kwargs": {"a": "x" * 70_000}}}, TEMPLATE, "larger than 64 KiB"),
        (OTHER | {"data": {"chat_template_kwargs": {"a": 1}}}, TEMPLATE, "verl gets no variables of the chat template"),
        (
            OTHER | {"data": {"tools_column": "calls"}},
            "data.tools_column",
            "verl takes no name for the column of tools",
        ),
        ({"reward": {"kind": "custom"}}, "reward.source", "needs its Python file"),
        ({"reward": {"kind": "custom", "source": "x" * 70_000}}, "reward.source", "larger than 64 KiB"),
        ({"knobs": {"algorithm.source": "x" * 70_000}}, "knobs.algorithm.source", "larger than 64 KiB"),
        ({"hardware": {"policy_ranks": 0}}, "hardware.policy_ranks", "from 1 to 4,096"),
        ({"hardware": {"policy_ranks": True}}, "hardware.policy_ranks", "a whole number"),
        ({"hardware": {"policy_ranks": 3}}, "knobs.rollout.prompts_per_step", "do not divide by 3 policy ranks"),
        (
            {"hardware": {"layout": "colocated"}, "knobs": {"memory.zero_stage": "3", "rollout.engine": "trainer"}},
            "hardware.layout",
            "let vLLM draw (rollout.engine)",
        ),
        (
            {
                "hardware": {"layout": "colocated", "policy_ranks": 4, "tensor_parallel_size": 3},
                "knobs": {"rollout.engine": "vllm"},
            },
            "hardware.tensor_parallel_size",
            "cannot take 3 of them each. Use a divisor of 4.",
        ),
        (
            {"knobs": {"train.updates_per_rollout": 5}},
            "knobs.train.updates_per_rollout",
            "do not divide the 128 samples",
        ),
        ({"knobs": {"train.seed": "abc"}}, "knobs.train.seed", "'abc' is not allowed for Seed"),
        ({"knobs": {"optimizer.learning_rate": "nan"}}, "knobs.optimizer.learning_rate", "a number from 0 to 1"),
        ({"knobs": {"memory.zero_stage": 2}}, "knobs.memory.zero_stage", "one of 0, 1, 2, 3"),
        ({"knobs": {"train.seed": {"value": 1, "origin": "moon"}}}, "knobs.train.seed", "Origin 'moon' is not allowed"),
        ({"knobs": {"train.batch_size": 3}}, "knobs.train.batch_size", "does not apply to GRPO"),
        ({"knobs": [1]}, "knobs", "an object of knob ids"),
        ({"name": "two\nlines"}, "name", "on one line"),
        ({"version": 9}, "version", "Use 1."),
        ({"algorithm": "sft", "data": {"response_column": ""}}, "data.response_column", "a messages column"),
    ],
)
def test_bad_input_names_field_value_and_what_is_allowed(raw: object, field: str, says: str) -> None:
    found = problems_of(raw)
    assert field in found
    assert says in found[field]


def test_vllm_draws_with_weights_that_zero_3_has_spread() -> None:
    given = {"hardware": {"layout": "colocated"}, "knobs": {"memory.zero_stage": "3", "rollout.engine": "vllm"}}

    assert parse_spec(given).workers == {"policy": 2, "vllm": 2}


def test_every_problem_is_told_at_once() -> None:
    assert len(problems_of({"x": 1, "name": 3, "knobs": {"train.seed": -1}, "hardware": {"policy_ranks": "two"}})) == 4


@pytest.mark.parametrize("raw", [None, 3, "grpo", []])
def test_what_is_not_an_object_is_refused(raw: object) -> None:
    assert "JSON object" in problems_of(raw)["spec"]


def test_a_million_unknown_names_are_refused_by_the_first_few() -> None:
    many = {f"x{number}": 1 for number in range(30_000)}
    for raw in (many, {"knobs": many}, {"model": many}):
        assert 1 <= len(problems_of(raw)) <= MAX_STRANGERS


def spec_or_problems(raw: object) -> RunSpec | tuple[Problem, ...]:
    try:
        return parse_spec(raw)
    except SpecInvalid as error:
        return error.problems


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
sections = st.sampled_from(
    ["version", "name", "algorithm", "trainer", "model", "data", "reward", "hardware", "policy", "knobs"]
)


@given(st.dictionaries(sections, json_values, max_size=4))
def test_any_json_is_either_a_spec_or_a_list_of_problems(raw: dict[str, object]) -> None:
    outcome = spec_or_problems(raw)
    if isinstance(outcome, RunSpec):
        assert parse_spec(to_json(outcome)) == outcome
    else:
        assert outcome
        assert all(p.field and p.message.endswith((".", "?")) for p in outcome)


@given(st.data())
def test_any_allowed_knob_value_survives_the_round_trip(data: st.DataObject) -> None:
    knob = data.draw(st.sampled_from(sorted(k for k, v in applicable("grpo", "native").items() if v.type == "float")))
    low, high = knobs()[knob].low, knobs()[knob].high
    value = data.draw(st.floats(low, high))
    assert parse_spec({"knobs": {knob: value}}).float_knob(knob) == value


def test_a_limit_is_written_as_people_read_it() -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({"profile": {"first_step": 0}})

    assert refused.value.problems[0].message == "0 is not allowed. Use a whole number from 1 to 1,000,000."


@pytest.mark.parametrize(
    ("kind", "place"),
    [("hub", "black-forest-labs/FLUX.1-dev"), ("hub", "qwen/qwen-image"), ("path", "/models/FLUX.1-dev/")],
)
def test_a_diffusion_transformer_is_refused_in_words(kind: str, place: str) -> None:
    found = problems_of({"algorithm": "sft", "trainer": {"name": "verl"}, "model": {"kind": kind, "id": place}})

    assert "is a diffusion transformer, which no trainer here trains" in found["model.id"]
