"""Every knob and metric of the catalogue says what it is, and every trainer names each knob in one way."""

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from jobs.catalog.algorithm import algorithms
from jobs.catalog.flag import Flag
from jobs.catalog.knob import Knob, KnobValueInvalid, applicable, is_live, knobs
from jobs.catalog.metric import metric, metrics
from jobs.catalog.rules.expression import FUNCTIONS
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.trainer import trainers

ALL_KNOBS = list(knobs().values())
PAIR = ["first", "second"]
PLACES = [
    (trainer.id, version, algorithm)
    for trainer in trainers().values()
    for version in trainer.versions
    for algorithm in algorithms()
    if trainer.offers(algorithm, version)
]
UNWRITTEN = re.compile(r"to be written|see the source", re.IGNORECASE)


def flag_of(knob: Knob, trainer: str, version: str, algorithm: str) -> Flag:
    flag = knob.flag(trainer=trainer, version=version, algorithm=algorithm)
    assert flag is not None
    return flag


def test_a_knob_lacks_nothing() -> None:
    assert {knob.id: lacking for knob in ALL_KNOBS if (lacking := list(lacks(knob)))} == {}


def lacks(knob: Knob) -> Iterator[str]:
    texts = (knob.label, knob.help, knob.source, *knob.effects.values())
    if not all(texts) or any(UNWRITTEN.search(text) for text in texts):
        yield "a text"
    if knob.label.endswith(".") or not knob.help.endswith("."):
        yield "a label without a full stop, and a help with one"
    if set(knob.effects) != {"memory", "speed", "stability"}:
        yield "its effects on memory, speed and stability"
    if knob.type in ("int", "float") and not float("-inf") < knob.low < knob.high:
        yield "a range"
    if knob.type == "choice" and not len(set(knob.choices)) == len(knob.choices) > 1:
        yield "choices"
    if knob.default is None and not knob.is_optional:
        yield "a default"


def test_a_knob_reaches_a_trainer_for_each_of_its_algorithms() -> None:
    reached: defaultdict[str, set[str]] = defaultdict(set)
    for trainer, version, algorithm in PLACES:
        for knob_id in applicable(algorithm, trainer, version):
            reached[knob_id].add(algorithm)

    assert {knob.id: missing for knob in ALL_KNOBS if (missing := set(knob.algorithms) - reached[knob.id])} == {}


def test_each_option_of_a_knob_is_used_and_keeps_to_the_words_of_the_knob() -> None:
    for knob in ALL_KNOBS:
        for flag in knob.flags:
            assert any(holds(flag, place) and place[2] in knob.algorithms for place in PLACES), (knob.id, flag.name)
            assert set(flag.choices) <= set(knob.choices), (knob.id, flag.name)
            assert knob.type != "choice" or set(flag.values) <= set(knob.choices), (knob.id, flag.name)
            assert not flag.limits or flag.limits[0] < flag.limits[1], (knob.id, flag.name)


def holds(flag: Flag, place: tuple[str, str, str]) -> bool:
    return flag.holds(trainer=place[0], version=place[1], algorithm=place[2])


@pytest.mark.parametrize("place", PLACES, ids=" ".join)
def test_a_trainer_names_a_knob_in_one_way_and_no_two_knobs_alike(place: tuple[str, str, str]) -> None:
    trainer, version, algorithm = place
    twice, named = {}, defaultdict(list)
    for knob in applicable(algorithm, trainer, version).values():
        found = [flag for flag in knob.flags if holds(flag, place)]
        if len(found) > 1:
            twice[knob.id] = [flag.name for flag in found]
        for name in found[0].names:
            named[name].append((found[0].form, knob.id))

    assert twice == {}
    assert {name: knobs_ for name, knobs_ in named.items() if not is_alone_or_a_pair(knobs_)} == {}


def is_alone_or_a_pair(named: list[tuple[str, str]]) -> bool:
    forms = sorted(form for form, _ in named)
    return forms == PAIR if set(forms) & set(PAIR) else len(forms) == 1


@pytest.mark.parametrize("place", PLACES, ids=" ".join)
def test_every_default_passes_its_own_check_and_makes_a_spec(place: tuple[str, str, str]) -> None:
    trainer, version, algorithm = place
    here = applicable(algorithm, trainer, version)
    for knob in here.values():
        default = knob.default_for(algorithm, trainer, version)
        assert knob.check(default) == default, knob.id

    spec = parse_spec({"trainer": {"name": trainer, "version": version}, "algorithm": algorithm})
    assert set(spec.knobs) == set(here)


@pytest.mark.parametrize("place", [p for p in PLACES if p[0] != "native"], ids=" ".join)
def test_what_a_trainer_does_by_itself_is_the_default_unless_the_knob_says_otherwise(
    place: tuple[str, str, str],
) -> None:
    trainer, version, algorithm = place
    for knob in applicable(algorithm, trainer, version).values():
        own = flag_of(knob, *place).own_default()
        if own is not None and not {trainer, algorithm, f"{trainer}/{algorithm}"} & set(knob.defaults):
            as_ours = knob.check(str(own) if knob.type in ("choice", "text") else own)
            assert knob.default_for(algorithm, trainer, version) == as_ours, knob.id


def test_defaults_name_trainers_algorithms_and_devices_that_there_are() -> None:
    whose = {*trainers(), *algorithms(), *(f"{t}/{a}" for t in trainers() for a in algorithms())}
    whose |= {f"{t}@{device}" for t in trainers() for device in ("cpu", "cuda")}

    assert {key for knob in ALL_KNOBS for key in knob.defaults} <= whose


def test_a_need_names_a_known_knob_and_values_that_it_can_take() -> None:
    for knob in ALL_KNOBS:
        for need in knob.needs:
            other = knobs()[need.knob]
            assert other.id != knob.id
            if need.above is None:
                assert need.values, knob.id
                assert all(type(other.check(v)) is type(v) and other.check(v) == v for v in need.values), knob.id
            else:
                assert other.type in ("int", "float"), knob.id
                assert need.above < other.high, knob.id


def test_a_knob_that_needs_another_is_live_only_beside_it() -> None:
    spec = parse_spec({"trainer": {"name": "verl"}, "knobs": {"train.dynamic_batch": True}})
    values = {knob_id: chosen.value for knob_id, chosen in spec.knobs.items()}

    assert is_live("train.max_tokens_per_gpu", values)
    assert not is_live("train.micro_batch_size", values)
    assert is_live("train.micro_batch_size", {"train.micro_batch_size": 1})  # a trainer without the other knob


@pytest.mark.parametrize(
    "knob_id",
    [
        "models.trust_remote_code",
        "models.external_module",
        "data.dataset_class_path",
        "rollout.sync_custom_module",
        "rollout.engine_options",
        "async.custom_sampler_path",
        "agent.tool_config_path",
        "agent.function_tool_path",
        "agent.function_path",
        "checkpoint.callback_class",
        "profiling.finish_command",
        "profiling.precision_config_path",
        "agent.router_config_path",
        "data.dataset_class_name",
        "checkpoint.resume_from",
        "checkpoint.megatron_sharded_path",
        "lora.megatron_adapter_path",
        "skip.folder",
        "trace.prometheus_file",
        "algorithm.source",
    ],
)
def test_what_names_code_a_command_or_a_file_to_unpickle_or_overwrite_is_privileged(knob_id: str) -> None:
    assert knobs()[knob_id].is_privileged


@pytest.mark.parametrize(
    ("trainer", "version", "algorithm", "knob_id", "name"),
    [
        ("openrlhf", "0.11.2", "ppo", "optimizer.learning_rate", "--actor.adam.lr"),
        ("openrlhf", "0.10.1", "ppo", "optimizer.learning_rate", "--actor_learning_rate"),
        ("openrlhf", "0.10.2", "dpo", "optimizer.learning_rate", "--adam.lr"),
        ("openrlhf", "0.8.6", "sft", "optimizer.learning_rate", "--learning_rate"),
        ("openrlhf", "0.8.6", "grpo", "rollout.max_new_tokens", "--generate_max_len"),
        ("verl", "0.9.1", "grpo", "rollout.samples_per_prompt", "actor_rollout_ref.rollout.n"),
        ("verl", "0.9.1", "sft", "optimizer.learning_rate", "optim.lr"),
    ],
)
def test_a_version_has_its_own_option(trainer: str, version: str, algorithm: str, knob_id: str, name: str) -> None:
    assert flag_of(knobs()[knob_id], trainer, version, algorithm).name == name


@pytest.mark.parametrize(
    ("place", "knob_id", "value"),
    [
        (("verl", "0.9.1", "dapo"), "algorithm.clip_ratio_high", 0.28),
        (("openrlhf", "0.11.2", "dapo"), "algorithm.kl_coefficient", 0.0),
        (("openrlhf", "0.11.2", "ppo"), "algorithm.kl_coefficient", 0.01),
        (("verl", "0.9.1", "dr_grpo"), "algorithm.normalize_by_std", False),
        (("verl", "0.9.1", "sft"), "optimizer.learning_rate", 0.001),
        (("openrlhf", "0.8.6", "ppo"), "train.micro_batch_size", 4),
        (("openrlhf", "0.10.1", "ppo"), "train.micro_batch_size", 1),
        (("native", "", "sft"), "optimizer.learning_rate", 0.003),
    ],
)
def test_a_default_is_the_algorithms_then_the_trainers_own(
    place: tuple[str, str, str], knob_id: str, value: object
) -> None:
    trainer, version, algorithm = place
    assert knobs()[knob_id].default_for(algorithm, trainer, version) == value


def test_a_trainer_takes_only_its_own_words_of_a_choice() -> None:
    flat = applicable("ppo", "openrlhf", "0.10.1")["optimizer.schedule"]
    assert flat.choices == ("constant", "cosine_with_min_lr")
    with pytest.raises(KnobValueInvalid, match="one of constant, cosine_with_min_lr"):
        flat.check("linear")


def test_not_set_is_no_value_where_the_trainer_has_one_of_its_own() -> None:
    assert applicable("grpo", "verl", "0.9.1")["train.num_steps"].check(None) is None
    with pytest.raises(KnobValueInvalid):
        applicable("grpo", "native")["train.num_steps"].check(None)
    with pytest.raises(KnobValueInvalid):
        applicable("ppo", "openrlhf", "0.11.2")["data.max_samples"].check("")


@pytest.mark.parametrize(
    ("knob_id", "typed", "value"),
    [
        ("optimizer.learning_rate", "3e-4", 3e-4),
        ("train.batch_size", "1,200", 1200),
        ("train.batch_size", 7.0, 7),
        ("memory.gradient_checkpointing", "on", True),
        ("memory.gradient_checkpointing", "", False),
        ("memory.zero_stage", "3", "3"),
        ("train.num_steps", "", None),
    ],
)
def test_knobs_read_what_people_type(knob_id: str, typed: object, value: object) -> None:
    read = knobs()[knob_id].check(typed)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("typed", [None, True, "abc", float("inf"), "nan", 1.5, -1, [], {}, 10**400])
def test_a_whole_number_knob_refuses_everything_else(typed: object) -> None:
    with pytest.raises(KnobValueInvalid, match="a whole number from 1 to 1,048,576"):
        knobs()["train.batch_size"].check(typed)


def test_every_metric_has_a_definition_and_phases_have_one_too() -> None:
    assert all(
        m.label and m.definition.endswith(".") and m.better in ("higher", "lower", "") for m in metrics().values()
    )
    assert metric("time/weight_sync_seconds").unit == "s"
    assert metric("my/own").definition == "Reported by the trainer."


def test_the_names_of_groups_and_functions_do_not_meet() -> None:
    """A rule's expression reads `max(...)` as a function and `train.seed` as a knob."""
    assert not {knob.group for knob in ALL_KNOBS} & set(FUNCTIONS)


def test_numbers_of_named_sets_and_of_several_samples_are_known() -> None:
    assert metric("eval/hard/loss").better == "lower"
    assert metric("eval/hard/accuracy").label == "Held-out accuracy: hard"
    assert (metric("eval/pass_at_8").label, metric("eval/hard/maj_at_16").better) == ("Held-out pass@8", "higher")
    assert metric("eval/pass_at_all").label == "eval/pass_at_all"
