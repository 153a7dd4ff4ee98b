"""The table of roles: what a run needs, and that the built-in trainer has a class for each role that its runs need."""

import ast
from pathlib import Path

import pytest

import jobs
from jobs.catalog.role import ROLES, roles_of
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from profiling import phases

VERL = {"name": "verl", "version": "0.9.1"}


def spec_of(algorithm: str, **changes: object) -> RunSpec:
    return parse_spec({"algorithm": algorithm, **changes})


def test_each_role_is_a_lane_of_the_timeline() -> None:
    assert set(ROLES) <= set(phases.ROLES)


@pytest.mark.parametrize(
    ("algorithm", "changes", "roles"),
    [
        ("sft", {}, ["policy"]),
        ("distill", {}, ["policy", "teacher"]),
        ("distill_on_policy", {}, ["policy", "vllm", "teacher"]),
        ("grpo", {}, ["policy", "vllm", "reference"]),
        ("grpo", {"knobs": {"algorithm.kl_coefficient": 0.0}}, ["policy", "vllm"]),
        ("ppo", {"trainer": VERL}, ["policy", "vllm", "critic"]),
    ],
)
def test_a_run_has_the_roles_that_it_needs(algorithm: str, changes: dict[str, object], roles: list[str]) -> None:
    spec = spec_of(algorithm, **changes)

    assert [role.id for role in roles_of(spec)] == roles
    assert [name for name in ROLES if spec.needs(name)] == roles


@pytest.mark.parametrize("algorithm", trainers()["native"].algorithms)
def test_the_built_in_trainer_has_a_class_for_each_role_of_its_algorithms(algorithm: str) -> None:
    for role in roles_of(spec_of(algorithm)):
        module, _colon, name = role.worker.partition(":")
        file = Path(jobs.__path__[0]).parent.joinpath(*module.split(".")).with_suffix(".py")
        classes = {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
        assert name in classes, role.id


def test_an_engine_counts_as_one_worker_on_as_many_devices_as_it_is_spread_over() -> None:
    spec = spec_of(
        "grpo", hardware={"layout": "split", "policy_ranks": 2, "rollout_engines": 3, "tensor_parallel_size": 4}
    )

    assert spec.workers == {"policy": 2, "vllm": 3, "reference": 1}
    assert spec.num_workers == 2 + 3 * 4 + 1


def test_engines_beside_the_policy_take_no_devices_of_their_own() -> None:
    colocated = {"layout": "colocated", "policy_ranks": 4, "tensor_parallel_size": 2, "rollout_engines": 3}
    by_vllm = spec_of("grpo", hardware=colocated, knobs={"rollout.engine": "vllm"})
    by_ranks = spec_of("grpo", hardware=colocated, knobs={"rollout.engine": "trainer"})

    assert by_vllm.workers == {"policy": 4, "vllm": 2}
    assert by_ranks.workers == {"policy": 4}
    assert by_vllm.num_workers == by_ranks.num_workers == 4
    apart = spec_of("grpo", hardware=colocated | {"layout": "split"}, knobs={"rollout.engine": "vllm"})
    assert apart.workers == {"policy": 4, "vllm": 3, "reference": 1}
