"""Mean lengths that a project's finished runs measured, for plans of further runs of the same model and data.

    joining["lengths"] = lengths_told(spec, measured)       # as a run joins (jobs.planning.joining)
    earlier = earlier_lengths(project, spec)                # as one is planned (jobs.planning.question)

How long answers are is what the time of a step depends on most, and no config says it. Once a run has told it, the
next plan need not assume a share of the cap. A run is like another where both start from the same model, take prompts
from the same data and may answer at the same length; the newest counts.
"""

import math
from dataclasses import dataclass
from typing import TypedDict

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.models import Project
from jobs.planning.plan_vs_measured import RunMeasurements

_CAPS = ("rollout.max_prompt_tokens", "rollout.max_new_tokens")


class MeasuredLengths(TypedDict):
    """What is kept of a run: `of` says which other runs it tells of; mean tokens of `prompt` (0: not told) and
    `response`."""

    of: list[str]
    prompt: float
    response: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierLengths:
    """Mean tokens of prompts (0: not told) and responses, and the run that measured them."""

    run: str
    prompt: float
    response: float


def lengths_told(spec: RunSpec, measured: RunMeasurements) -> MeasuredLengths | None:
    """Return what is kept of a finished run, None where it rolled nothing out or told no length."""
    if not is_in(spec.algorithm, "rl") or not measured.mean_response:
        return None
    return MeasuredLengths(of=_like(spec), prompt=measured.mean_prompt, response=measured.mean_response)


def earlier_lengths(project: Project, spec: RunSpec, *, before: str = "") -> EarlierLengths | None:
    """Return what the newest finished run of the same model, data and caps measured, no more than the caps; None where
    there is none. `before`: a run, for those that had joined before it did."""
    if not is_in(spec.algorithm, "rl"):
        return None
    like = _like(spec)
    most_prompt, most_response = (spec.int_knob(name) if name in spec.knobs else math.inf for name in _CAPS)
    joined = project.joined_runs.get("joined", ())
    place = next((at for at, joining in enumerate(joined) if joining["run"] == before), -1)
    for joining in joined[place + 1 :]:  # the newest first
        lengths: MeasuredLengths | None = joining.get("lengths")
        if lengths is not None and lengths["of"] == like:
            return EarlierLengths(
                run=joining["run"],
                prompt=min(lengths["prompt"], most_prompt),
                response=min(lengths["response"], most_response),
            )
    return None


def _like(spec: RunSpec) -> list[str]:
    """Return what runs have in common whose answers are as long."""
    caps = (str(spec.knobs[name].value) if name in spec.knobs else "" for name in _CAPS)
    return [spec.model.kind, spec.model.id, spec.data.kind, spec.data.id, *caps]
