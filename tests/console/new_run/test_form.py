"""Form and spec say the same in both directions, for every field."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from console.forms.new_run.fields import groups
from console.forms.new_run.form import (
    Combination,
    base_of,
    baseline,
    changes,
    default_spec,
    form_to_raw,
    minimal,
    show,
    spec_to_form,
)
from jobs.catalog.knob import Knob, applicable
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import (
    RANGES,
    SECTIONS,
    DataSource,
    KnobValue,
    RewardPart,
    RunSpec,
    SpecPart,
    Trainer,
    choices_of,
    to_json,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=40)
VARIABLES = st.dictionaries(
    st.from_regex(r"[a-z_]{1,9}_", fullmatch=True),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
        max_leaves=4,
    ),
    max_size=3,
)
NAME = TEXT.map(lambda text: "".join(c for c in text if ord(c) >= 32).strip())
ORIGINS = st.sampled_from(["default", "recipe", "you", "tuner"])
RULES = st.from_regex(r"[a-z_]{1,9}\.[a-z_]{1,9}", fullmatch=True)
COMBINATIONS: list[tuple[Any, Trainer]] = [
    ("grpo", Trainer()),
    ("sft", Trainer()),
    ("ppo", Trainer(name="openrlhf", version="0.8.6")),
    ("dpo", Trainer(name="openrlhf", version="0.11.2")),
    ("dapo", Trainer(name="verl", version="0.9.1")),
]
LIMITS = {"policy_ranks": 8, "rollout_engines": 8, "tensor_parallel_size": 8, "cpus_per_worker": 8, "retries": 10}


OBJECTS = {
    "chat_template_kwargs": VARIABLES,
    "eval_sets": st.just({"hard": {"id": "/data/hard.jsonl", "every_steps": 100, "temperature": 0.5}}),
    "variables": st.just({"NCCL_DEBUG": "INFO", "TWO": "a=b, c"}),
    "secrets": st.just(("HF_TOKEN", "WANDB_API_KEY")),
    "mixture": st.just({"algebra": {"kind": "hub", "id": "org/name", "weight": 0.25}}),
}


def section_values(cls: type[SpecPart]) -> st.SearchStrategy[Any]:
    def values(name: str, field: FieldInfo) -> st.SearchStrategy[Any]:
        if choices := choices_of(field):
            return st.sampled_from(choices)
        if field.annotation is int:
            return st.integers(1, LIMITS.get(name, 8))
        if field.annotation is float:
            section = "data" if issubclass(cls, DataSource) else "reward"
            return st.floats(*RANGES[f"{section}.{name}"])
        if name == "more":
            return st.lists(section_values(RewardPart), max_size=2).map(tuple)
        return OBJECTS.get(name, TEXT)

    return st.builds(cls, **{name: values(name, field) for name, field in cls.model_fields.items()})


def knob_value(knob: Knob) -> st.SearchStrategy[Any]:
    if knob.is_optional:
        return st.none() | knob_value(replace(knob, is_optional=False))
    if knob.type == "text":
        return TEXT
    if knob.type == "bool":
        return st.booleans()
    if knob.type == "choice":
        return st.sampled_from(knob.choices)
    if knob.type == "int":
        return st.integers(int(knob.low), int(min(knob.high, 1 << 40)))
    return st.floats(knob.low, knob.high)


@st.composite
def specs(draw: st.DrawFn) -> RunSpec:
    """Any spec a form could hold; not all can be launched, which is not the form's business."""
    algorithm, trainer = draw(st.sampled_from(COMBINATIONS))
    sections = {name: draw(section_values(cls)) for name, cls in SECTIONS.items()} | {"trainer": trainer}
    here = applicable(algorithm, trainer.name, trainer.version)
    some = draw(st.sets(st.sampled_from(sorted(here)), max_size=40))
    chosen = {
        knob_id: KnobValue(value=draw(knob_value(knob)), origin=draw(ORIGINS))
        if knob_id in some
        else KnobValue(value=knob.default_for(algorithm, trainer.name, trainer.version))
        for knob_id, knob in here.items()
    }
    overridden = tuple(draw(st.lists(RULES, unique=True, max_size=3)))
    return RunSpec(name=draw(NAME), algorithm=algorithm, knobs=chosen, overridden=overridden, **sections)


@settings(max_examples=40, deadline=None)
@given(spec=specs())
def test_a_spec_survives_the_form_with_every_field_and_origin(spec: RunSpec) -> None:
    raw = form_to_raw(spec_to_form(spec), base=spec)

    assert raw == to_json(spec)


@settings(max_examples=40, deadline=None)
@given(spec=specs())
def test_a_form_read_against_the_defaults_has_the_same_values(spec: RunSpec) -> None:
    raw = form_to_raw(spec_to_form(spec), base=default_spec(spec.algorithm, spec.trainer.name, spec.trainer.version))

    values = {
        k: show(v["value"]) if not isinstance(v["value"], str) else v["value"] for k, v in raw.pop("knobs").items()
    }
    wanted = to_json(spec)
    assert values == {k: show(v["value"]) for k, v in wanted.pop("knobs").items()}
    assert raw == wanted


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("", {}),
        (" \r\n ", {}),
        ('{"enable_thinking": false,\r\n "n": 1.5}', {"enable_thinking": False, "n": 1.5}),
        ("enable_thinking: false", "enable_thinking: false"),
        ("[" * 100_000, "[" * 100_000),
        ("[1]", [1]),
    ],
)
def test_variables_of_the_template_are_typed_as_json(typed: str, read: object) -> None:
    raw = form_to_raw(spec_to_form(default_spec()) | {"data.chat_template_kwargs": typed}, base=default_spec())

    assert raw["data"]["chat_template_kwargs"] == read  # type: ignore[index]


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_shown_shortly_and_exactly(value: float) -> None:
    assert float(show(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(3e-4, "3e-4"), (1e-6, "1e-6"), (1.0, "1"), (0.002, "0.002"), (0.6, "0.6"), (True, "true"), (8, "8")],
)
def test_numbers_are_written_as_people_do(value: float, text: str) -> None:
    assert show(value) == text


def test_the_form_offers_exactly_the_spec_s_fields() -> None:
    names = {name for name in spec_to_form(default_spec()) if not name.startswith("knobs.")}

    fields = {"name", "algorithm", "overridden"} | {
        f"{section}.{field}" for section, cls in SECTIONS.items() for field in cls.model_fields
    }
    assert names == fields - {"model.id", "data.id"} | {"model.id.bundled", "data.id.bundled"}
    assert set(RunSpec.model_fields) == {
        "version",
        "name",
        "algorithm",
        "knobs",
        "overridden",
        *SECTIONS,
    }


def test_a_changed_knob_is_the_person_s_and_a_restored_one_is_the_base_s_again() -> None:
    base = parse_spec({"knobs": {"train.num_steps": {"value": 40, "origin": "recipe"}}})

    changed = parse_spec(form_to_raw({"knobs.train.num_steps": "50"}, base))
    restored = parse_spec(form_to_raw({"knobs.train.num_steps": "40"}, base))
    default = parse_spec(form_to_raw({"knobs.train.num_steps": "60"}, base))

    assert changed.knobs["train.num_steps"] == KnobValue(value=50, origin="you")
    assert restored.knobs["train.num_steps"] == KnobValue(value=40, origin="recipe")
    assert default.knobs["train.num_steps"] == KnobValue(value=60, origin="default")


def test_another_way_to_write_a_number_is_no_change() -> None:
    spec = parse_spec(form_to_raw({"knobs.optimizer.learning_rate": "0.0003"}, default_spec()))

    assert spec.knobs["optimizer.learning_rate"].origin == "default"


def test_another_algorithm_starts_from_its_own_defaults_and_keeps_what_was_chosen() -> None:
    base = parse_spec({"algorithm": "grpo", "knobs": {"train.seed": 7}})

    start = baseline(base, Combination(algorithm="sft"))

    assert start["optimizer.learning_rate"] == {"value": 3e-3, "origin": "default"}
    assert start["train.seed"] == {"value": 7, "origin": "you"}
    assert "rollout.temperature" not in start


def test_another_device_starts_from_its_own_defaults_and_keeps_what_was_chosen() -> None:
    base = parse_spec({"knobs": {"rollout.enforce_eager": True, "train.seed": 7}})

    start = baseline(base, Combination(device="cuda"))
    spec = parse_spec(form_to_raw({"hardware.device": "cuda"}, default_spec()))

    assert start["memory.precision"] == {"value": "bfloat16", "origin": "default"}
    assert start["rollout.enforce_eager"] == {"value": True, "origin": "you"}
    assert spec.knobs["memory.precision"] == KnobValue(value="bfloat16", origin="default")
    assert spec.knob("rollout.enforce_eager") is False
    assert parse_spec(minimal(spec)) == spec
    assert "knobs" not in minimal(spec)


def test_knobs_of_the_other_algorithm_in_the_form_are_left_out() -> None:
    spec = parse_spec(form_to_raw({"algorithm": "sft", "knobs.rollout.temperature": "0.5"}, default_spec()))

    assert "rollout.temperature" not in spec.knobs


def test_looking_at_another_kind_of_source_keeps_both_texts() -> None:
    form = {"data.kind": "path", "data.id.path": "/data/a.jsonl", "data.id.hub": "org/name"}

    assert form_to_raw(form, default_spec())["data"]["id"] == "/data/a.jsonl"
    assert form_to_raw({**form, "data.kind": "hub"}, default_spec())["data"]["id"] == "org/name"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("hardware.policy_ranks", "two", "'two' is not allowed. Use a whole number from 1"),
        ("hardware.policy_ranks", "0", "0 is not allowed"),
        ("hardware.policy_ranks", "1.5", "1.5 is not allowed"),
        ("data.eval_share", "", "'' is not allowed. Use a number from 0"),
        ("knobs.train.num_steps", "-3", "'-3' is not allowed for Steps. Use a whole number from 1"),
        ("knobs.optimizer.learning_rate", "fast", "'fast' is not allowed for Learning rate. Use a number from 0 to 1"),
        ("knobs.train.nmu_steps", "3", "Did you mean train.num_steps?"),
        ("algorithm", "pppo", "'pppo' is not allowed. Use one of grpo, sft"),
        ("trainer.version", "seven", "Built-in trainer has no version 'seven'. Leave it out."),
        ("trainer.version", "7", "Built-in trainer has no version '7'. Leave it out."),
        ("model.kind", "ftp", "'ftp' is not allowed. Use one of bundled, path, hub"),
    ],
)
def test_bad_text_is_refused_beside_its_own_field(name: str, text: str, words: str) -> None:
    with pytest.raises(SpecInvalid) as caught:
        parse_spec(form_to_raw({name: text}, default_spec()))

    assert words in {p.field: p.message for p in caught.value.problems}[name]


@pytest.mark.parametrize("name", [name for name in RANGES if name != "reward.weight"])  # of several rewards alone
def test_what_a_number_field_says_it_takes_is_what_is_taken(name: str) -> None:
    said = next(f.allowed for group in groups({}, Combination()) for f in group.fields if f.name == name)

    with pytest.raises(SpecInvalid) as caught:
        parse_spec(form_to_raw({name: "-1"}, default_spec()))

    (problem,) = caught.value.problems
    assert problem.message.endswith(f" is not allowed. Use {said}.")


def test_changes_against_the_base_are_named_with_what_was() -> None:
    base = parse_spec({"name": "first"})
    spec = parse_spec({"name": "second", "knobs": {"train.num_steps": 5}, "hardware": {"policy_ranks": 1}})

    assert changes(spec, base) == [("hardware.policy_ranks", "2"), ("knobs.train.num_steps", "60")]


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"algorithm": "sft", "name": "x", "knobs": {"train.num_steps": 7}},
        {"knobs": {"train.seed": {"value": 3, "origin": "tuner"}}, "reward": {"kind": "format"}},
        {"knobs": {"train.num_steps": 60}},
    ],
)
def test_the_short_spec_reads_as_the_same_spec(raw: dict[str, Any]) -> None:
    spec = parse_spec(raw)

    assert parse_spec(json.loads(json.dumps(minimal(spec)))) == spec


def test_the_short_spec_is_short() -> None:
    assert minimal(default_spec()) == {"algorithm": "grpo"}


def test_a_damaged_base_falls_back_to_the_defaults() -> None:
    assert base_of("{") == base_of('{"x": 1}') == base_of("") == default_spec()
