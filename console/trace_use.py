"""The card of a trace's summary that holds its operations against the peak of the hardware."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.utils.translation import gettext as _

from console.labels.traces import operations_text, share_text
from jobs.catalog.accelerator import Accelerator, accelerators, find_accelerator
from jobs.catalog.sentence import in_words
from jobs.catalog.value import plain_number
from jobs.diagnosis.model_facts import OfRun
from profiling.analysis.flops import PASSES, FlopCount, FlopsModel, Use, training_flops, use
from profiling.analysis.summary import TraceSummary, WorkerSummary

TYPES = ("bf16", "fp16", "fp8")


@dataclass(frozen=True, slots=True)
class NumberInput:
    """A number that people may give: its bounds, and what it is without."""

    low: float
    high: float
    without: float


NUMBERS: Mapping[str, NumberInput] = {
    "parameters": NumberInput(1, 1e14, 0),
    "tokens": NumberInput(1, 1e12, 0),
    "context": NumberInput(0, 1e8, 0),
    "layers": NumberInput(0, 10_000, 0),
    "width": NumberInput(0, 1e6, 0),
    "devices": NumberInput(1, 1e6, 1),
}


class Wrong(ValueError):
    """What was given cannot be used: for each field a sentence that says what is allowed."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = problems
        super().__init__(" ".join(problems.values()))


@dataclass(frozen=True, slots=True)
class PeakQuery:
    """What the use is held against. `peak` is of one device [FLOP/s], 0 while no accelerator is known."""

    accelerator: Accelerator | None
    dtype: str
    numbers: Mapping[str, float]
    recompute: str

    @property
    def peak(self) -> float:
        """Dense peak of one device in the chosen type. [FLOP/s]"""
        return self.accelerator.peak.get(self.dtype, 0.0) if self.accelerator else 0.0


def asked_of(texts: Mapping[str, str], device_name: str) -> PeakQuery:
    """Return what an address asks for; the accelerator is by default the one that the trace names. Raises: Wrong."""
    problems: dict[str, str] = {}
    name = texts.get("accelerator", "").strip()
    accelerator = None
    try:
        accelerator = find_accelerator(name[:200]) if name else _by_device(device_name)
    except LookupError as error:
        problems["accelerator"] = in_words(error.args[0], _)
    dtype = texts.get("dtype", "") or "bf16"
    if dtype not in TYPES:
        text = _("Number type: %(given)r is not one of %(known)s.")
        problems["dtype"] = text % {"given": dtype[:40], "known": ", ".join(TYPES)}
    recompute = texts.get("recompute", "") or "none"
    if recompute not in PASSES:
        text = _("Recomputation: %(given)r is not one of %(known)s.")
        problems["recompute"] = text % {"given": recompute[:40], "known": ", ".join(PASSES)}
    numbers = {key: _number(key, texts.get(key, ""), problems) for key in NUMBERS}
    if problems:
        raise Wrong(problems)
    return PeakQuery(accelerator, dtype, numbers, recompute)


def _number(key: str, text: str, problems: dict[str, str]) -> float:
    """Return a number that was given; what is wrong with it joins the problems."""
    about = NUMBERS[key]
    if not text.strip():
        return about.without
    try:
        value = float(plain_number(text[:40]))
    except ValueError:
        value = math.nan
    if not about.low <= value <= about.high:
        words = {"field": key, "given": text[:40], "low": f"{about.low:g}", "high": f"{about.high:g}"}
        problems[key] = _("%(field)s: %(given)r is not a number from %(low)s to %(high)s.") % words
    return value


def _by_device(name: str) -> Accelerator | None:
    try:
        return find_accelerator(name) if name else None
    except LookupError:
        return None


def by_shapes(query: PeakQuery, summary: TraceSummary, worker: WorkerSummary) -> Use | None:
    """Return the use by the recorded sizes of products: what this worker executed, over its steps, on one device."""
    if worker.flops is None or not worker.flops.with_shapes:
        return None
    seconds = sum(step.end - step.begin for step in summary.budget.steps) / 1e9
    return use(worker.flops.flops, seconds=seconds, devices=1, peak=query.peak)


def by_model(query: PeakQuery, summary: TraceSummary) -> tuple[Use | None, Use | None, str]:
    """Return MFU and HFU of a mean step by the model that was given, and the formula of its operations."""
    numbers, steps = query.numbers, summary.budget.steps
    if not numbers["parameters"] or not numbers["tokens"] or not summary.has_steps:
        return None, None, ""
    model = FlopsModel(parameters=numbers["parameters"], layers=int(numbers["layers"]), width=int(numbers["width"]))
    flops = training_flops(
        model,
        tokens=numbers["tokens"],
        context=numbers["context"],
        recompute=query.recompute,  # type: ignore[arg-type]  # it was checked
    )
    seconds = sum(step.end - step.begin for step in steps) / len(steps) / 1e9
    uses = [
        use(each, seconds=seconds, devices=int(numbers["devices"]), peak=query.peak)
        for each in (flops.model, flops.executed)
    ]
    return uses[0], uses[1], flops.formula


def in_update(query: PeakQuery, summary: TraceSummary, mfu: Use | None) -> Use | None:
    """Return the use while the critical path is in the update alone, where the operations are; None without phases."""
    path = summary.budget.path
    ns = sum(part.ns for step in path for part in step.parts if part.phase == "update")
    if mfu is None or not ns:
        return None
    return use(mfu.flops, seconds=ns / len(path) / 1e9, devices=mfu.devices, peak=query.peak)


def filled(texts: Mapping[str, str], run: OfRun) -> dict[str, str]:
    """Return what an address asks for, and in its gaps what the run knows."""
    return {**run.values(), **{key: value for key, value in texts.items() if value.strip()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class UsePanel:
    """What the card shows: what was given, where each input is from, and the shares of the peak in words.

    What follows `problem` is empty where an input is wrong; `problem` then says what is allowed.
    """

    sources: Mapping[str, str]
    notes: Sequence[str]
    texts: dict[str, str]
    accelerators: Sequence[str]
    types: Sequence[str] = TYPES
    recomputes: Sequence[str] = tuple(PASSES)
    counted: FlopCount | None
    operations: str
    by_operator: Sequence[tuple[str, str]]
    device_name: str
    problem: str = ""
    accelerator: Accelerator | None = None
    peak: str = ""
    dtype: str = ""
    shapes: Use | None = None
    shapes_text: str = ""
    mfu: Use | None = None
    mfu_text: str = ""
    update: Use | None = None
    update_text: str = ""
    hfu_text: str = ""
    formula: str = ""


def use_panel(texts: Mapping[str, str], summary: TraceSummary, worker: WorkerSummary, run: OfRun) -> UsePanel:
    """Return what the card shows; a wrong input keeps what was typed and says what is allowed."""
    counted = worker.flops
    texts = filled(texts, run)
    panel = UsePanel(
        sources={one.key: one.source for one in run.inputs if texts.get(one.key) == one.value},
        notes=run.notes,
        texts={key: texts.get(key, "")[:40] for key in (*NUMBERS, "accelerator", "dtype", "recompute")},
        accelerators=sorted(one.label for one in accelerators().values() if one.vendor != "host"),
        counted=counted,
        operations=operations_text(counted.flops if counted and counted.with_shapes else None),
        by_operator=[(name, operations_text(flops)) for name, flops in counted.by_operator] if counted else [],
        device_name=worker.device_name,
    )
    try:
        query = asked_of(texts, worker.device_name)
    except Wrong as error:
        return replace(panel, problem=str(error))
    shapes = by_shapes(query, summary, worker)
    mfu, hfu, formula = by_model(query, summary)
    update = in_update(query, summary, mfu)
    return replace(
        panel,
        texts=panel.texts | ({"accelerator": query.accelerator.label} if query.accelerator else {}),
        accelerator=query.accelerator,
        peak=operations_text(query.peak) if query.peak else "—",
        dtype=query.dtype,
        shapes=shapes,
        shapes_text=share_text(shapes.share if shapes else None),
        mfu=mfu,
        mfu_text=share_text(mfu.share if mfu else None),
        update=update,
        update_text=share_text(update.share if update else None),
        hfu_text=share_text(hfu.share if hfu else None),
        formula=formula,
    )
