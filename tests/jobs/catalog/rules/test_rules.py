"""What findings say and refuse, and that sound runs are left alone; what each rule promises is in tests/contracts."""

import pytest

from jobs.catalog.algorithm import is_in
from jobs.catalog.rules.rule import SpecFinding, changed, findings, refused
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.trainer import trainers
from tests.contracts.test_configuration_rules import example


def found(rule_id: str, spec: RunSpec) -> SpecFinding:
    return next(finding for finding in findings(spec) if finding.rule == rule_id)


@pytest.mark.parametrize(
    ("trainer", "version", "algorithm"),
    [
        (info.id, version, algorithm)
        for info in trainers().values()
        for version in info.versions
        for algorithm in info.algorithms
        if info.offers(algorithm, version)
    ],
)
def test_a_run_of_defaults_is_not_refused(trainer: str, version: str, algorithm: str) -> None:
    named = (
        {"models.teacher_path": "/models/teacher"} if is_in(algorithm, "distillation") else {}
    )  # nobody else's to say
    spec = parse_spec({"algorithm": algorithm, "trainer": {"name": trainer, "version": version}, "knobs": named})

    assert refused(spec) == []


def test_an_error_refuses_the_run_at_its_first_knob_until_it_is_put_aside() -> None:
    spec = example("parallel.tensor_parallel_with_zero_3")

    (problem,) = refused(spec)

    assert problem.field == "knobs.parallel.tensor_parallel_size"
    assert "does not go with ZeRO-3" in problem.message
    aside = parse_spec(to_json(spec) | {"overridden": ["parallel.tensor_parallel_with_zero_3"]})
    assert refused(aside) == []
    assert found("parallel.tensor_parallel_with_zero_3", aside).is_overridden


def test_changes_that_this_version_makes_the_same_are_offered_once() -> None:
    spec = parse_spec({"algorithm": "ppo", "trainer": {"name": "openrlhf"}, "knobs": {"rollout.enforce_eager": True}})

    (fix,) = next(f.fixes for f in findings(spec) if "rollout.enforce_eager" in f.knobs)

    assert fix.changes == {"rollout.enforce_eager": False}  # verl alone has the sizes of graphs


def test_a_finding_speaks_the_readers_language() -> None:
    spec = example("algorithm.clip_higher_is_looser")

    finding = findings(spec, say=lambda text: text.replace("The upper clip", "Die obere Grenze"))[0]

    assert finding.message.startswith("Die obere Grenze 0.28")


@pytest.mark.parametrize(
    ("rule_id", "parts"),
    [
        ("placement.balanced_recipe_hides_groups", ["48 together", "asked for 64", "needs 64"]),
        ("kl.adaptive_target_out_of_reach", ["factor 0.9795", "after 100 steps by 0.126", "switches KL control off"]),
        ("algorithm.clip_higher_is_looser", ["0.28 is looser", "no remedy"]),
        ("rollout.nccl_cumem_breaks_vllm", ["NCCL_CUMEM_ENABLE=0", "vLLM 0.16 and later"]),
        ("parallel.tensor_parallel_with_zero_3", ["ZeRO-2 or lower"]),
        ("lora.not_in_openrlhf_rl", ["trains no LoRA", "SFT, DPO and reward models can"]),
        ("quantization.fp8_without_correction", ["accuracy visibly drops"]),
        ("trace.prometheus_is_rewritten", ["rewrites the whole"]),
        ("parallel.stage_split_by_hand", ["88 / 7", "72 / 6"]),
    ],
)
def test_the_traps_are_told_as_they_are(rule_id: str, parts: list[str]) -> None:
    finding = found(rule_id, example(rule_id))

    for part in parts:
        assert part in f"{finding.message} {finding.why}"


def test_a_change_makes_the_48_gpu_recipe_fit_48_gpus() -> None:
    spec = example("placement.balanced_recipe_hides_groups")

    (fix,) = found("placement.balanced_recipe_hides_groups", spec).fixes

    assert spec.num_workers == 64
    assert changed(spec, fix.changes).num_workers == 48
