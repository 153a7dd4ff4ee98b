"""Answers to one prompt share its beginning, and the engine computes it again for each."""

import numpy as np

from profiling.diagnosis.evaluators import whole_window
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_NO_BLOCK = (
    "Prefix caching is on but never hits: it keeps only full blocks (16 tokens on GPUs, 128 on CPUs), and "
    "the length of prompts is not reported."
)


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    hits = evidence.reading("prefix_cache_hit_percent")
    samples = evidence.knobs.get("rollout.samples_per_prompt")
    if not isinstance(samples, int):
        return InsufficientData(what="readings", text="It is not known how many responses a prompt gets.")
    if hits is None:
        return InsufficientData(
            what="readings", text="The engine reported no use of its prefix cache: it may be switched off."
        )
    values = evidence.in_steps(hits)
    if not len(values):
        return InsufficientData(what="readings")
    expected = (samples - 1) / samples if samples > 1 else 0.0
    share = float(np.median(values)) / 100
    if share == 0 and evidence.knobs.get("rollout.enable_prefix_caching") is True:
        return InsufficientData(what="readings", text=_NO_BLOCK)
    begin, end = whole_window(hits, evidence)
    words = {"samples": samples, "expected": f"{100 * expected:.0f} %", "share": f"{100 * share:.0f} %"}
    lost = max(0.0, expected - share)
    return Observation(value=lost, begin=begin, end=end, words=words, role=hits.role, rank=hits.rank)


PLUGIN = Rule(
    title="Prefix cache unused",
    question="why",
    definition="Fraction of prompt tokens that could be found in the prefix cache (all but one response of "
    "each prompt), minus the fraction that was.",
    unit="share",
    watch=0.5,
    bad=0.8,
    source="ours",
    needs=("readings",),
    is_live=True,
    fires="{share} of the prompt tokens come from the prefix cache; with {samples} responses a prompt it "
    "could be {expected}.",
    clear="{share} of the prompt tokens come from the prefix cache; {expected} is what {samples} "
    "responses a prompt allow.",
    advice="Switch prefix caching on, and send the responses of a prompt to the same engine.",
    changes=(KnobChange("rollout.enable_prefix_caching", "on"),),
    evaluate=_evaluate,
)
