"""One hardware of an answer of *Can it run?* in detail: every need, a plan by phase, what was published, the way on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from console.guide.device_answer import PublishedLine, shown_row
from console.labels.catalog import phase_label
from console.views.can_it_run.needs import (
    JobOnHardware,
    NeedRow,
    binding_row,
    layout_text,
    need_row,
    panel_of,
    shown_needs,
    times_text,
)
from console.views.can_it_run.question import HardwareQuestion
from console.views.can_it_run.to_new_run import plan_url
from console.views.plan.largest_terms import LargestTermsPanel, parts_panel
from console.views.plan.panel import MemoryRow, PlanPanel, estimate_panel, seconds_text
from jobs.catalog.accelerator import Accelerator
from jobs.models import Project
from jobs.planner.can_it_run.language_models import DeviceNeed, HardwareOption, PublishedRun
from jobs.planner.can_it_run.own_layouts import LEAST_DEVICES, OwnLayoutFit, own_layouts
from jobs.planner.diffusion.job import DiffusionJob
from jobs.planner.job import Fleet
from jobs.planner.sensitivity import sensitivities
from jobs.planning.settings import constants_of

BEARINGS = {
    "supports": ("ready", gettext_lazy("supports it")),
    "contradicts": ("failed", gettext_lazy("contradicts it")),
    "says nothing": ("missing", gettext_lazy("says nothing")),
}
_VERDICTS: Mapping[str, tuple[str, Any]] = {
    "fits": ("ready", gettext_lazy("fits")),
    "tight": ("warning", gettext_lazy("tight")),
    "no": ("failed", gettext_lazy("does not fit")),
}
_LAYOUT_WORDS: Mapping[str, Any] = {
    "split": pgettext_lazy("layout of roles", "Split"),
    "shared": gettext_lazy("Shared"),
    "colocated": gettext_lazy("Colocated"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLayoutRow:
    """A layout of the built-in trainer on so many devices: the answer, and why where there is none."""

    devices: str
    layout: str
    state: str
    word: str
    phase: str
    bar: MemoryRow | None
    limit_x: str
    step: str
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A published configuration, and what it says to the answer."""

    each: PublishedLine
    state: str
    word: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """The hardware whose details are shown: every need, the layout's plan by phase, what was published, the layouts of
    the built-in trainer (`own`), the way on."""

    label: str
    needs: tuple[NeedRow, ...]
    layout: str
    devices: str
    is_recommended: bool
    plan: PlanPanel | None
    largest_terms: LargestTermsPanel | None
    published: tuple[PublishedRow, ...]
    own: tuple[OwnLayoutRow, ...]
    plan_url: str


def detail(option: HardwareOption, question: HardwareQuestion, project: Project | None) -> Detail:
    """Return what the page shows of the hardware whose row is chosen."""
    verdict = option.verdict
    at = verdict.at
    least = verdict.practical or verdict.possible
    fits = verdict.answer != "no" and at is not None
    return Detail(
        label=option.accelerator.label,
        needs=tuple(need_row(need, is_least=need is least) for need in shown_needs(verdict)),
        layout=layout_text(at),
        devices=times_text(at.num_devices if at is not None else None),
        is_recommended=verdict.recommended is not None and at is verdict.recommended,
        plan=panel_of(at),
        largest_terms=_largest_terms(at, project),
        published=tuple(_published(each) for each in verdict.published),
        own=_own(option.accelerator, question, project),
        plan_url=_plan_url(question, option.accelerator, at) if fits else "",
    )


def _own(accelerator: Accelerator, question: HardwareQuestion, project: Project | None) -> tuple[OwnLayoutRow, ...]:
    """Return the built-in trainer's layouts of GRPO with KL; none of another method, of pictures, or without bf16."""
    if question.shape is None or question.method != "grpo" or not accelerator.has_bf16:
        return ()
    fits = own_layouts(question.shape, accelerator, question.demand, constants=constants_of(project))
    return tuple(_own_row(each, accelerator) for each in fits)


def _own_row(each: OwnLayoutFit, accelerator: Accelerator) -> OwnLayoutRow:
    label, least = _LAYOUT_WORDS[each.layout], LEAST_DEVICES[each.layout]
    estimate, devices = each.estimate, f"{each.num_devices:,}"
    if estimate is None or each.job is None:
        too_few = each.num_devices < least
        word = _("takes %(n)s at least") % {"n": least} if too_few else _("cannot be laid out")
        state, phase, bar, limit_x, step = "missing", "—", None, "", "—"
    else:
        fleet = Fleet(accelerator=accelerator, num_devices=each.num_devices)
        panel = estimate_panel(estimate, JobOnHardware(job=each.job, fleet=fleet))
        state, word = _VERDICTS[estimate.verdict]
        phase, bar, limit_x = phase_label(estimate.phase), binding_row(panel), panel.limit_x
        step = seconds_text(estimate.time.step) if estimate.verdict != "no" else "—"
    return OwnLayoutRow(
        devices=devices,
        layout=str(label),
        state=state,
        word=str(word),
        phase=phase,
        bar=bar,
        limit_x=limit_x,
        step=step,
        is_best=each.is_best,
    )


def _plan_url(question: HardwareQuestion, accelerator: Accelerator, at: DeviceNeed | None) -> str:
    """Return the address of a New run page that plans a layout, "" where no run can be made of it."""
    if at is None or at.job is None or at.num_devices is None or isinstance(at.job, DiffusionJob):
        return ""
    demand, method = question.demand, question.method
    return plan_url(question.model, question.config, method, demand, accelerator, at.job, at.num_devices)


def _largest_terms(need: DeviceNeed | None, project: Project | None) -> LargestTermsPanel | None:
    """Return what moves the answer most; None for a diffusion transformer, whose constants were measured on others."""
    if need is None or need.estimate is None or need.job is None or isinstance(need.job, DiffusionJob):
        return None
    moved = sensitivities(need.job, constants_of(project))
    return parts_panel(need.estimate, moved, has_settings=project is not None)


def _published(run: PublishedRun) -> PublishedRow:
    row = run.row
    state, word = BEARINGS[run.bearing]
    reason = {
        "supports": _("By this estimate no more devices are needed."),
        "contradicts": _("By this estimate more devices are needed: one of the two is wrong."),
        "says nothing": _("It ran on devices with more memory, or one of the two is a mixture of experts."),
    }[run.bearing]
    return PublishedRow(each=shown_row(row), state=state, word=str(word), reason=reason)
