"""Answers to one prompt share its beginning, and the engine computes it again for each."""

import numpy as np

from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn
from profiling.judging import whole_window

_NO_BLOCK = (
    "Prefix caching is on, and nothing is ever found in it: it keeps whole blocks alone (16 tokens on GPUs, 128 on "
    "processors), and how long prompts are is not told."
)


def _judge(evidence: Evidence) -> Seen | Missing:
    hits = evidence.reading("prefix_cache_hit_percent")
    samples = evidence.knobs.get("rollout.samples_per_prompt")
    if not isinstance(samples, int):
        return Missing(what="readings", text="It is not known how many answers a prompt gets.")
    if hits is None:
        return Missing(what="readings", text="The engine told no use of its prefix cache: it may be switched off.")
    values = evidence.in_steps(hits)
    if not len(values):
        return Missing(what="readings")
    expected = (samples - 1) / samples if samples > 1 else 0.0
    share = float(np.median(values)) / 100
    if share == 0 and evidence.knobs.get("rollout.enable_prefix_caching") is True:
        return Missing(what="readings", text=_NO_BLOCK)
    begin, end = whole_window(hits, evidence)
    words = {"samples": samples, "expected": f"{100 * expected:.0f} %", "share": f"{100 * share:.0f} %"}
    lost = max(0.0, expected - share)
    return Seen(value=lost, begin=begin, end=end, words=words, role=hits.role, rank=hits.rank)


PLUGIN = Rule(
    title="Prefix cache unused",
    question="why",
    definition="Share of prompt tokens that could be found in the prefix cache (all but one answer of each "
    "prompt), less the share that was.",
    unit="share",
    watch=0.5,
    bad=0.8,
    source="ours",
    needs=("readings",),
    is_live=True,
    fires="{share} of the prompt tokens come from the prefix cache; with {samples} answers a prompt it could "
    "be {expected}.",
    clear="{share} of the prompt tokens come from the prefix cache; {expected} is what {samples} answers a "
    "prompt allow.",
    advice="Switch prefix caching on, and send the answers of a prompt to the same engine.",
    turns=(Turn("rollout.enable_prefix_caching", "on"),),
    judge=_judge,
)
