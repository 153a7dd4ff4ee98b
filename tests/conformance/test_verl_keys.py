"""Every key that the catalogue names for verl stands in the composed configs of its version, with that default."""

from typing import Any

import pytest

from jobs.adapters.verl.keys import has_key, keys_of
from jobs.adapters.verl.units import TOGETHER
from jobs.catalog.algorithm import is_in
from jobs.catalog.flag import Flag
from jobs.catalog.knob import Knob, applicable
from jobs.catalog.trainer import trainers
from tests.conformance import write_verl_keys
from tests.conformance.hydra_compose import Composer
from tests.conformance.unpacked_wheels import unpacked
from tests.versions import newest_first

# Keys that the adapter writes in every command, so that verl's own default never counts: placeholders such as
# ~/models/deepseek-llm-7b-chat, and values that follow another key.
WRITTEN_ALWAYS = {
    "actor_rollout_ref.rollout.name",
    "critic.model.path",
    "reward.reward_model.rollout.name",
    "reward_model.rollout.name",
    "actor_rollout_ref.model.use_remove_padding",  # 0.7.0 packs the policy's samples and not the critic's
    "critic.model.use_remove_padding",
}
FOLLOWS = {
    "actor_rollout_ref.rollout.n_gpus_per_node": "trainer.n_gpus_per_node",
    "actor_rollout_ref.rollout.profiler.enable": "actor_rollout_ref.actor.profiler.enable",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "actor_rollout_ref.rollout.prometheus.served_model_name": "actor_rollout_ref.model.path",
    "actor_rollout_ref.actor.checkpoint.load_contents": "actor_rollout_ref.actor.checkpoint.save_contents",
    "critic.checkpoint.load_contents": "critic.checkpoint.save_contents",
    "checkpoint.load_contents": "checkpoint.save_contents",
}
VERSIONS = trainers()["verl"].versions


def named(version: str) -> list[tuple[str, Knob, Flag, str]]:
    """Return (algorithm, knob, flag, key) of everything that the catalogue names for a version."""
    return [
        (algorithm, knob, flag, f"{name}.key" if flag.form == "engine_options" else name)
        for algorithm in trainers()["verl"].algorithms
        for knob in applicable(algorithm, "verl", version).values()
        if (flag := knob.flag(trainer="verl", version=version, algorithm=algorithm)) is not None
        for name in flag.names
    ]


def as_theirs(knob: Knob, flag: Flag) -> Any:
    """Return a flag's default as the composed config has it."""
    default: Any = flag.default
    if flag.form in ("words", "modules"):
        parts = [part for part in str(default or "").split(",") if part]
        if flag.form == "modules":
            return parts[0] if len(parts) == 1 else parts or None
        return [int(part) if part.isdecimal() else part for part in parts]
    if default == "null":
        return None
    if isinstance(default, str) and knob.type in ("int", "float"):
        return float(default)
    return default


@pytest.mark.proof
@pytest.mark.parametrize("version", VERSIONS)
def test_the_written_keys_are_those_of_the_wheel(version: str) -> None:
    path = write_verl_keys.FOLDER / f"verl-{version}.json"

    same = path.read_text(encoding="utf-8") == write_verl_keys.text(version)

    assert same, "Run: python -m tests.conformance.write_verl_keys"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_key_is_there_with_the_default_that_the_catalogue_says(version: str) -> None:
    wrong = []
    for algorithm, knob, flag, name in named(version):
        known = keys_of("main_ppo" if is_in(algorithm, "rl") else "sft_trainer", version)
        if name.startswith("--"):
            continue  # an option of Hydra, not a key
        if name.startswith("+"):
            if name.lstrip("+") in known:
                wrong.append(f"{knob.id}: {name} needs no +")
            continue
        if name not in known:
            wrong.append(f"{knob.id}: there is no key {name}")
        elif (
            flag.form not in TOGETHER and name not in FOLLOWS and not (flag.default is None and name in WRITTEN_ALWAYS)
        ):
            there, mine = known[name], as_theirs(knob, flag)
            if flag.form in ("first", "second"):
                there = there[flag.form == "second"]
            is_unset = flag.default is None and there in (None, "", [])
            if not is_unset and (there != mine or isinstance(there, bool) != isinstance(mine, bool)):
                wrong.append(f"{knob.id}: {name} is {there!r} in verl, and {mine!r} in the catalogue")

    assert sorted(set(wrong)) == []


@pytest.mark.parametrize("version", newest_first(VERSIONS))
@pytest.mark.parametrize(("program", "engine"), [("main_ppo", "dp"), ("main_ppo", "megatron"), ("sft_trainer", "")])
def test_added_keys_are_taken_with_their_plus(version: str, program: str, engine: str) -> None:
    added = {
        name
        for algorithm, _, _, name in named(version)
        if name.startswith("+") and is_in(algorithm, "rl") == (program == "main_ppo")
    }
    here = sorted(name for name in added if has_key(program, version, name, is_megatron=engine == "megatron"))
    chosen = write_verl_keys.engine_words(version, engine)

    composed = Composer(unpacked(f"verl-{version}")).compose(program, [*chosen, *(f"{name}=1" for name in here)])

    assert composed.is_accepted, composed.text
    assert [name for name in here if composed.values[name.lstrip("+")] != 1] == []
