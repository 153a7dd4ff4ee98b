"""What the trainers' own code rejects is refused at the right knob; what it accepts only for what it cannot see."""

from collections import Counter
from collections.abc import Iterable

import pytest

from jobs.catalog.knob import knobs
from jobs.catalog.rules.rule import SpecFinding, findings, refused
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from tests.conformance import openrlhf_rejected, verl_rejected
from tests.conformance.openrlhf_specs import VERSIONS, specs_of

VERL = trainers()["verl"].versions[0]
Rejected = openrlhf_rejected.Rejection | verl_rejected.Rejection

BEHIND_THE_PARSER = {
    "algorithm.correction_bounds_crossed",  # it leaves every token out
    "batch.data_smaller_than_batch",  # it depends on the data that the parser does not read
    "batch.rollout_without_update",
    "lora.not_in_openrlhf_rl",  # the options are there, the engines get no adapter
    "memory.four_bit_needs_bf16",  # asserted when the model is loaded
    "memory.half_precision_cannot_sync",  # asserted at the first update of weights
    "memory.muon_with_offload",  # fails when DeepSpeed is set up
    "reward.clip_range_is_empty",
}
"""Errors in runs that OpenRLHF's parser, and the checks behind it, accept."""


def fields_refused(rejection: Rejected) -> set[str]:
    """Return the fields at which we refuse the spec."""
    try:
        return {problem.field for problem in refused(parse_spec(rejection.raw))}
    except SpecInvalid as error:
        return {problem.field for problem in error.problems}


def missed(rejections: Iterable[Rejected]) -> Counter[tuple[str, ...]]:
    """Return the rejections that we do not refuse, or refuse elsewhere."""
    return Counter(
        (each.rule, each.spec.trainer.version, each.spec.algorithm, each.says)
        for each in rejections
        if not fields_refused(each) & {f"knobs.{field}" if field in knobs() else field for field in each.fields}
    )


def test_what_openrlhf_rejects_is_refused_at_the_right_field() -> None:
    all_of_them = list(openrlhf_rejected.rejected())[::2]  # make proof-conformance takes all

    assert len(all_of_them) >= 200
    assert missed(all_of_them) == {}


def test_what_verl_rejects_is_refused_at_the_right_field() -> None:
    all_of_them = list(verl_rejected.rejected(VERL))

    assert len(all_of_them) >= 100
    assert missed(all_of_them) == {}


def test_the_runs_that_verl_accepts_are_not_refused() -> None:
    strange = [(spec.algorithm, refused(spec)) for spec in verl_rejected.starts(VERL) if refused(spec)]

    assert strange == []


@pytest.mark.parametrize("version", VERSIONS)
def test_what_openrlhf_accepts_is_refused_only_for_what_its_parser_cannot_see(version: str) -> None:
    strange = {
        f"{finding.rule}: {finding.message}"
        for spec in specs_of(version, 40)
        for finding in errors(spec)
        if finding.rule not in BEHIND_THE_PARSER
    }

    assert strange == set()


def errors(spec: RunSpec) -> list[SpecFinding]:
    return [finding for finding in findings(spec) if finding.level == "error"]
