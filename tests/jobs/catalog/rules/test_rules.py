"""Every rule is whole, finds what it is about, offers changes that mend it, and leaves sound runs alone."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.knob import knobs
from jobs.catalog.rules.expression import parse_expression
from jobs.catalog.rules.rule import KINDS, LEVELS, Finding, Rule, changed, findings, refused, rules
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import SECTIONS, RunSpec, to_json
from jobs.catalog.trainer import trainers

ROOT = Path(__file__).parents[4]
EXAMPLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("rule_examples.toml").read_text(encoding="utf-8")
)
FIELDS = {f"{section}.{field}" for section, cls in SECTIONS.items() for field in cls.model_fields}
NAMES = set(knobs()) | set(DERIVED) | set(RunSpec.model_fields) | FIELDS
REFERENCE = re.compile(r"(R-neg|[A-Z]{1,2}\d{1,2}|guide \d+\.\d+)")


def example(rule_id: str) -> RunSpec:
    given = dict(EXAMPLES[rule_id])
    trainer = {"name": given.pop("trainer"), "version": given.pop("version", "")}
    return parse_spec({**given, "trainer": trainer})


def found(rule_id: str, spec: RunSpec) -> Finding:
    return next(finding for finding in findings(spec) if finding.rule == rule_id)


def errors(found: Iterable[Finding]) -> set[str]:
    return {finding.rule for finding in found if finding.level == "error"}


def templates(rule: Rule) -> list[str]:
    return re.findall(r"\{([^{}]+)\}", rule.says + rule.why)


def flaws(rule: Rule) -> list[str]:
    """Return what is missing in a rule, or not known."""
    expressions = [rule.when, *map(parse_expression, templates(rule))]
    expressions += [expression for fix in rule.fixes for expression in fix.values()]
    known = set(knobs()) | FIELDS
    found = [f"{text!r} is no sentence" for text in (rule.says, rule.why) if not text.endswith(".")]
    found += [f"{part!r} is no row" for part in rule.ref.split(", ") if not REFERENCE.fullmatch(part)]
    found += [f"{name} is not known" for expression in expressions for name in set(expression.names) - NAMES]
    found += [
        f"{name} is no knob" for name in {*rule.knobs, *(n for fix in rule.fixes for n in fix)} - known - {"algorithm"}
    ]
    if rule.level not in LEVELS or rule.kind not in KINDS or not rule.source or not rule.knobs:
        found.append("level, kind, source or knobs are missing")
    return [f"{rule.id}: {text}" for text in found]


def test_every_rule_has_all_its_parts_and_knows_what_it_reads() -> None:
    assert [flaw for rule in rules().values() for flaw in flaws(rule)] == []


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    assert set(EXAMPLES) == set(rules())


@pytest.mark.parametrize("rule_id", EXAMPLES)
def test_a_rule_finds_its_example_and_each_change_on_offer_mends_it(rule_id: str) -> None:
    spec = example(rule_id)

    before = findings(spec)

    finding = next(each for each in before if each.rule == rule_id)
    assert "—" not in finding.says + finding.why, "a value is missing in the sentence"
    assert "{" not in finding.says.replace("{}", "") + finding.why
    assert finding.knobs
    assert bool(finding.fixes) == bool(rules()[rule_id].fixes)
    for place, fix in enumerate(finding.fixes):
        mended = parse_spec(to_json(changed(spec, fix.changes)))
        now = findings(mended)
        assert rule_id not in {other.rule for other in now}, fix
        assert place or errors(now) <= errors(before), f"{fix} brings {errors(now) - errors(before)}"


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
    spec = parse_spec({"algorithm": algorithm, "trainer": {"name": trainer, "version": version}})

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

    assert finding.says.startswith("Die obere Grenze 0.28")


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
        assert part in f"{finding.says} {finding.why}"


def test_a_change_makes_the_48_gpu_recipe_fit_48_gpus() -> None:
    spec = example("placement.balanced_recipe_hides_groups")

    (fix,) = found("placement.balanced_recipe_hides_groups", spec).fixes

    assert spec.num_workers == 64
    assert changed(spec, fix.changes).num_workers == 48
