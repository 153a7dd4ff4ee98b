"""What the New run page's search looks through: every option and key that any adapter reads or writes is in it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.forms.new_run.knob_index import knob_index
from jobs.adapters.adapter import IS_DEFAULT, adapter
from jobs.adapters.command_line.hydra import override
from jobs.adapters.openrlhf.options import BEFORE, PROGRAMS, options_of
from jobs.adapters.verl.keys import keys_of
from jobs.catalog.recipe import recipes
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import SECTIONS, RunSpec
from jobs.catalog.trainer import trainers

REWARDS = (
    {"kind": "math"},
    {"kind": "file", "location": "/srv/reward.py"},
    {"kind": "url", "location": "http://10.0.0.5/score"},
    {"kind": "model", "location": "/srv/reward-model"},
)
OPTION = re.compile(r"--\w|[+~]*[\w.]+=")  # of a command line, or a key of Hydra's
VERL = [(program, version) for program in ("main_ppo", "sft_trainer") for version in trainers()["verl"].versions]


def known_names() -> dict[str, str]:
    """Return every name in the index, bare of its marks, with what it leads to: inputs, or a reason."""
    index = knob_index()
    found: dict[str, list[str]] = {}
    for name, entry in {**index["knobs"], **index["fields"]}.items():
        for flag in entry["flags"]:
            found.setdefault(bare(flag["name"]), []).append(name)
    for told in index["told"]:
        assert told["why"].endswith("."), told
        found.setdefault(bare(told["name"]), []).append(told["why"])
    return {name: " ".join(leads) for name, leads in found.items()}


def bare(name: str) -> str:
    return name.lstrip("+~-")


def runs() -> Iterator[RunSpec]:
    """Every recipe, and for every algorithm and version of other trainers each kind of reward and of data."""
    yield from (recipe.spec for recipe in recipes().values())
    for info in trainers().values():
        for version in info.versions:
            for algorithm in info.algorithms:
                for reward in REWARDS:
                    for data in (
                        {"kind": "bundled"},
                        {"kind": "path", "id": "/d/a.parquet", "eval_id": "/d/b.parquet"},
                    ):
                        raw = {"algorithm": algorithm, "trainer": {"name": info.id, "version": version}}
                        try:
                            yield parse_spec({**raw, "reward": reward, "data": data})
                        except SpecInvalid:
                            continue  # not offered by this version, or no reward of its own


def test_every_option_that_a_command_is_written_with_is_found() -> None:
    known = known_names()
    written: set[str] = set()
    for spec in runs():
        try:
            argv = (
                adapter(spec.trainer.name).command(spec=spec, run_dir=Path("/run"), python="python", device="cuda").argv
            )
        except ValueError:
            continue  # what this trainer cannot be told
        if trainers()[spec.trainer.name].package:
            place = max(at for at, word in enumerate(argv) if word == "-m")  # torchrun's own stands before it
            written |= {word.partition("=")[0] for word in argv[place + 2 :] if OPTION.match(word)}

    assert len(written) > 150
    assert {name for name in written if bare(name) not in known} == set()


@pytest.mark.parametrize("version", trainers()["openrlhf"].versions)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_of_openrlhf_is_found(program: str, version: str) -> None:
    known = known_names()

    assert {name for name in {*options_of(program, version), *BEFORE} if bare(name) not in known} == set()


@pytest.mark.parametrize(("program", "version"), VERL)
def test_every_key_of_verl_that_becomes_something_is_found(program: str, version: str) -> None:
    known = known_names()
    read = []
    for key, default in keys_of(program, version).items():
        text = f"python -m verl.trainer.{program} {override(key, other_than(default))}"
        found = adapter("verl").read_back(arguments=[text], version=version)
        told = {each.option for each in found.left_out if each.why != IS_DEFAULT}
        if key in found.understood or key in told:
            read.append(key)

    assert len(read) > 60
    assert [key for key in read if key not in known] == []


@pytest.mark.parametrize(
    ("name", "leads"),
    [
        ("algorithm.adv_estimator", "algorithm"),
        ("--pretrain", "model.id"),
        ("actor_rollout_ref.model.path", "model.id"),
        ("model.partial_pretrain", "model.id"),
        ("data.train_files", "data.id"),
        ("--prompt_data", "data.id"),
        ("--data.prompt_dataset", "data.id"),
        ("--eval.dataset", "data.eval_id"),
        ("--input_key", "data.prompt_column"),
        ("reward_model.enable", "reward.location"),
        ("custom_reward_function.path", "reward.location"),
        ("--remote_rm_url", "reward.location"),
        ("--eps_clip", "knobs.algorithm.clip_ratio_low"),
        ("trainer.experiment_name", "name"),
        ("--nproc_per_node", "knobs.placement.policy_gpus_per_node"),
        ("actor_rollout_ref.rollout.skip_rollout", "knobs.skip.enable"),
        ("trainer.logger", "knobs.logging.services"),
        ("--save_path", "below the run directory"),
        ("actor_rollout_ref.actor.clip_ratio", "clip_ratio_low"),
    ],
)
def test_a_name_leads_to_the_input_that_sets_it_or_to_the_reason_why_none_does(name: str, leads: str) -> None:
    assert leads in known_names()[bare(name)]


def test_every_field_of_the_spec_is_found_by_its_own_name() -> None:
    fields = knob_index()["fields"]

    assert {name for section, cls in SECTIONS.items() for name in (f"{section}.{f}" for f in cls.model_fields)} <= set(
        fields
    )
    assert all(entry["label"] for entry in fields.values())


def other_than(default: Any) -> Any:
    """Return a value of the same kind that a key does not have by itself."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, (int, float)):
        return max(default + 1, 1)
    if isinstance(default, list):
        return [*default, "x"]
    return {"x": 1} if isinstance(default, dict) else 1 if default is None else f"{default}x"
