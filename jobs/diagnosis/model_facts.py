"""What a run knows of its model, tokens and devices, for the share of the peak that a recorded step makes (MFU).

Each value says where it is from, so that people see what to correct. What nobody told is left out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from django.utils.translation import gettext as _

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster import nodes as ran_on
from jobs.models import Attempt, Trace
from jobs.planning.policy_model import PlanRefused, policy_shape
from jobs.telemetry.attempt_spec import spec_json
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import MAX_POINTS, SeriesWindow
from profiling.counted import counted

_TYPES = {"bfloat16": "bf16", "float16": "fp16"}
_UPDATE, _UPDATE_RATE = "time/update_seconds", "throughput/update_tokens_per_second"
_STEP, _DEVICE_RATE = "time/step_seconds", "throughput/tokens_per_second_per_gpu"
_LENGTHS = ("prompt/length_mean", "response/length_mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaInput:
    """One input of the formula: `key` as the address has it, the value as a text, and where it is from."""

    key: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRun:
    """What a run knows. `notes`: sentences on what the formula leaves out, or why there is no peak."""

    inputs: tuple[FormulaInput, ...] = ()
    notes: tuple[str, ...] = ()

    def values(self) -> dict[str, str]:
        """Return the values by key."""
        return {one.key: one.value for one in self.inputs}


def of_run(trace: Trace, steps: Sequence[int]) -> OfRun:
    """Return what the run of a trace knows of the recorded steps; nothing of an upload without a run."""
    if trace.run is None:
        return OfRun()
    number = trace.capture.attempt if trace.capture else trace.run.latest_attempt
    attempt = Attempt.objects.filter(run=trace.run, number=number).select_related("run").first()
    if attempt is None:
        return OfRun()
    try:
        spec = parse_spec(spec_json(attempt))
    except SpecInvalid:  # launched by an older console
        return OfRun()
    inputs = [*_model(spec), *_tokens(trace, spec, steps, attempt), *_devices(attempt), *_precision(spec)]
    return OfRun(inputs=tuple(inputs), notes=tuple(_notes(spec, attempt)))


def _model(spec: RunSpec) -> Iterator[FormulaInput]:
    try:
        shape, assumed = policy_shape(spec.model, may_read=True, reads=False)
    except PlanRefused:
        return
    source = assumed or _("config.json of %(model)s") % {"model": spec.model.id}
    used = _("%(source)s: parameters in products per token, without the table of embeddings") % {"source": source}
    yield FormulaInput(key="parameters", value=str(shape.matmul_parameters), source=used)
    yield FormulaInput(key="layers", value=str(shape.cache_layers), source=source)
    yield FormulaInput(key="width", value=str(shape.attention_width), source=source)


def _tokens(trace: Trace, spec: RunSpec, steps: Sequence[int], attempt: Attempt) -> Iterator[FormulaInput]:
    """Yield tokens of a mean step and of a document, as the run told of the recorded steps."""
    means = _metric_means(trace, steps)
    sequences = _sequences(spec)
    passes = spec.values().get("train.epochs_per_rollout", 1)
    passes = passes if isinstance(passes, int) and passes > 1 else 1
    if _UPDATE_RATE in means and _UPDATE in means:
        tokens, source = means[_UPDATE_RATE] * means[_UPDATE], _("tokens per second of the update times its seconds")
    elif _DEVICE_RATE in means and _STEP in means and attempt.num_gpus:
        tokens = means[_DEVICE_RATE] * means[_STEP] * attempt.num_gpus
        source = _("tokens per second and GPU times the seconds of a step and the GPUs")
    elif sequences and all(name in means for name in _LENGTHS):
        tokens, source = sequences * sum(means[name] for name in _LENGTHS), _("sequences of a step times their lengths")
    else:
        return
    if sequences:
        mean = counted(_("%(source)s, over %(n)s sequences") % {"source": source, "n": f"{sequences:,}"})
        yield FormulaInput(key="context", value=f"{tokens / sequences:.6g}", source=mean)
    if passes > 1:
        source = _("%(source)s, %(n)s passes over each") % {"source": source, "n": passes}
    yield FormulaInput(key="tokens", value=f"{passes * tokens:.8g}", source=source)


def _metric_means(trace: Trace, steps: Sequence[int]) -> dict[str, float]:
    """Return the means of the run's metrics over the recorded steps, those that were told of each of them."""
    wanted = [step for step in steps if step > 0]
    if not wanted:
        return {}
    names = (_UPDATE, _UPDATE_RATE, _STEP, _DEVICE_RATE, *_LENGTHS)
    window = SeriesWindow(low=min(wanted), high=max(wanted))
    series = read_clean(run_id=trace.run_id or "", names=names, num_points=MAX_POINTS, window=window).series
    by_name = {}
    for one in series:
        values = one.y[np.isin(one.x, wanted) & np.isfinite(one.y) & (one.y > 0)]
        if one.role == "driver" and len(values) == len(set(wanted)):
            by_name[one.name] = values
    means = {name: float(values.mean()) for name, values in by_name.items()}
    for rate, seconds in ((_UPDATE_RATE, _UPDATE), (_DEVICE_RATE, _STEP)):
        if rate in by_name and seconds in by_name:  # of each step its own tokens
            means[rate] = float((by_name[rate] * by_name[seconds]).sum() / by_name[seconds].sum())
    return means


def _sequences(spec: RunSpec) -> int:
    """Return how many sequences a step trains on, 0 where the spec does not say."""
    values = spec.values()
    names = ("rollout.prompts_per_step", "rollout.samples_per_prompt") if is_in(spec.algorithm, "rl") else ()
    sizes = [values.get(name, 0) for name in names or ("train.batch_size",)]
    return math.prod(one if isinstance(one, int) and one > 0 else 0 for one in sizes)


def _devices(attempt: Attempt) -> Iterator[FormulaInput]:
    if not attempt.num_gpus:
        return
    source = _("GPUs that attempt %(n)s asked for, of all roles") % {"n": attempt.number}
    yield FormulaInput(key="devices", value=str(math.ceil(attempt.num_gpus)), source=source)
    try:
        cluster = ran_on.cluster_of(attempt)
    except ran_on.PlaceUnknown:
        return
    kinds = {node.accelerator for node in cluster.nodes if node.accelerator} if cluster else set()
    if len(kinds) != 1:
        return
    try:
        accelerator = find_accelerator(kinds.pop())
    except LookupError:
        return
    yield FormulaInput(
        key="accelerator", value=accelerator.label, source=_("as Ray reported the nodes when the run started")
    )


def _precision(spec: RunSpec) -> Iterator[FormulaInput]:
    values = spec.values()
    precision = _TYPES.get(str(values.get("memory.precision", "")))
    if precision:
        yield FormulaInput(key="dtype", value=precision, source=_("knob memory.precision"))
    again = values.get("memory.gradient_checkpointing")
    if isinstance(again, bool):
        recompute = "full" if again else "none"
        yield FormulaInput(key="recompute", value=recompute, source=_("knob memory.gradient_checkpointing"))


def _notes(spec: RunSpec, attempt: Attempt) -> Iterator[str]:
    values = spec.values()
    if not attempt.num_gpus:
        yield _("The run used CPUs, whose peak is unknown, so there is no MFU. Choose an accelerator.")
    elif values.get("memory.precision") == "float32":
        yield _("The run computes in float32, whose peak is unknown here: the fraction is of the chosen type's peak.")
    if values.get("lora.rank") or values.get("lora.megatron_rank"):
        yield _("The run trains adapters: frozen weights have no gradient, so that a third of this is not computed.")
    if is_in(spec.algorithm, "rl"):
        yield _("Only the policy's update counts: what generates, scores or criticises is not in the operations.")
