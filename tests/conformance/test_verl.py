"""verl takes what we write: random valid specs and every recipe, composed by the real Hydra, and read back."""

from typing import Any

import pytest

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from tests.conformance.verl_checks import (
    CHECKED,
    VERSIONS,
    composer_of,
    differences,
    number_of_specs,
    overrides_of,
    recipes_of,
    refusals,
    specs_of,
)
from tests.conformance.verl_rejected import rejected
from tests.conformance.verl_specs import DRAWING
from tests.versions import newest_first


@pytest.mark.parametrize("version", newest_first(VERSIONS))
def test_hydra_takes_every_command_and_every_value_arrives_as_it_is_meant(version: str) -> None:
    for place, spec in enumerate(specs_of(version, number_of_specs())):
        assert refusals(spec, from_files=place % 20 == 0) == []


@pytest.mark.parametrize("version", newest_first(VERSIONS))
def test_a_command_read_back_is_the_spec_it_was_written_from(version: str) -> None:
    for spec in specs_of(version, number_of_specs()):
        assert differences(spec) == []


@pytest.mark.parametrize("recipe", recipes_of())
def test_every_recipe_is_taken_and_reads_back(recipe: str) -> None:
    spec = recipes_of()[recipe]

    assert refusals(spec) == []
    assert differences(spec) == []


@pytest.mark.parametrize(
    ("version", "algorithm", "tool"),
    [
        *((version, algorithm, "torch") for version in VERSIONS for algorithm in ("ppo", "grpo", "sft")),
        *((version, algorithm, "memory") for version in VERSIONS for algorithm in ("ppo", "sft")),
        (CHECKED, "ppo", "nsys"),
        (CHECKED, "grpo", "nsys"),
        (CHECKED, "grpo", "msprof"),
    ],
)
def test_hydra_takes_what_a_run_asks_to_record(version: str, algorithm: str, tool: str) -> None:
    raw = {
        "algorithm": algorithm,
        "trainer": {"name": "verl", "version": version},
        "model": {"kind": "path", "id": "/m"},
        "data": {"kind": "path", "id": "/d.parquet"},
        "profile": {"tool": tool, "first_step": 3, "num_steps": 2},
    }
    spec = parse_spec(raw)

    assert refusals(spec, from_files=(algorithm, tool) == ("grpo", "torch")) == []
    assert any("save_path" in word for word in overrides_of(spec)[1])


def test_specs_that_verl_refuses_still_compose() -> None:
    """What is wrong with them is what they say, not how it is written."""
    broken = list(rejected(CHECKED))[::12]

    assert [refusals(each.spec) for each in broken] == [[]] * len(broken)


@pytest.mark.parametrize(
    ("word", "knobs", "field"),
    [
        ("algorithm.kl_ctrl.horizon=soon", {"algorithm.kl_horizon": "soon"}, "knobs.algorithm.kl_horizon"),
        ("trainer.nnodes=1.5", {"placement.policy_nodes": 1.5}, "knobs.placement.policy_nodes"),
        (
            "actor_rollout_ref.actor.policy_loss.loss_mode=clip-cov",
            {"algorithm.policy_loss": "clip-cov"},
            "knobs.algorithm.policy_loss",
        ),
        (
            "actor_rollout_ref.rollout.gpu_memory_utilization=1.5",
            {"rollout.gpu_memory_fraction": 1.5},
            "knobs.rollout.gpu_memory_fraction",
        ),
        ("actor_rollout_ref.actor.optim.lr=abc", {"optimizer.learning_rate": "abc"}, "knobs.optimizer.learning_rate"),
        ("actor_rollout_ref.rollout.n=0", {"rollout.samples_per_prompt": 0}, "knobs.rollout.samples_per_prompt"),
        ("actor_rollout_ref.rollout.name=hf", {"rollout.backend": "hf"}, "knobs.rollout.backend"),
        ("trainer.v1.trainer_mode=bogus", {"async.mode": "bogus"}, "knobs.async.mode"),
        ("data.truncation=maybe", {"data.truncation": "maybe"}, "knobs.data.truncation"),
        ("data.shuffle=7", {"data.shuffle": 7}, "knobs.data.shuffle"),
    ],
)
def test_we_refuse_values_that_hydra_lets_through(word: str, knobs: dict[str, Any], field: str) -> None:
    raw = {"algorithm": "grpo", "trainer": {"name": "verl", "version": "0.9.1"}, "knobs": knobs}

    composed = composer_of("0.9.1").quick("main_ppo", [word])
    with pytest.raises(SpecInvalid) as refused:
        parse_spec(raw | DRAWING.sections("grpo"))

    assert composed.is_accepted
    assert [problem.field for problem in refused.value.problems] == [field]


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("gspo", {"algorithm.adv_estimator=grpo", "actor_rollout_ref.actor.policy_loss.loss_mode=gspo"}),
        (
            "dr_grpo",
            {
                "algorithm.adv_estimator=grpo",
                "algorithm.norm_adv_by_std_in_grpo=False",
                "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm",
            },
        ),
        (
            "dapo",
            {
                "algorithm.adv_estimator=grpo",
                "actor_rollout_ref.actor.clip_ratio_high=0.28",
                "algorithm.filter_groups.enable=True",
                "reward.reward_manager.name=dapo",
            },
        ),
        ("ppo", {"algorithm.adv_estimator=gae", "critic.model.path=Qwen/Qwen2.5-0.5B-Instruct"}),
        ("reinforce_pp", {"algorithm.adv_estimator=reinforce_plus_plus"}),
        ("reinforce_pp_baseline", {"algorithm.adv_estimator=reinforce_plus_plus_baseline"}),
        ("rloo", {"algorithm.adv_estimator=rloo"}),
    ],
)
def test_an_algorithm_is_what_verl_calls_by_several_settings(algorithm: str, words: set[str]) -> None:
    raw = {"algorithm": algorithm, "trainer": {"name": "verl", "version": "0.9.1"}} | DRAWING.sections(algorithm)

    _, overrides = overrides_of(parse_spec(raw))

    assert words <= set(overrides)
