"""Can it run? A model, hardware and a method in; the planner's answer and the published configurations out.

It needs no cluster and no trainer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from console.guide.device_answer import PublishedLine, published_answer, shown_row
from console.labels.catalog import phase_label
from console.labels.numbers import size
from console.views.can_it_run.diffusion import known_diffusion_models, picture_facts, picture_note
from console.views.can_it_run.question import MAX_DEVICES, MAX_OPTIONS, HardwareQuestion, address_of
from console.views.can_it_run.to_new_run import plan_url
from console.views.plan.largest_terms import LargestTermsPanel, parts_panel
from console.views.plan.panel import MemoryRow, PlanPanel, estimate_panel, interval_text, seconds_text
from jobs.catalog.accelerator import Accelerator, accelerators
from jobs.catalog.model import models
from jobs.catalog.sentence import in_words
from jobs.models import Project
from jobs.planner.can_it_run.headline import doubt, how
from jobs.planner.can_it_run.language_models import (
    DeviceNeed,
    FitVerdict,
    HardwareOption,
    PublishedRun,
    compare_hardware,
)
from jobs.planner.can_it_run.own_layouts import LEAST_DEVICES, OwnLayoutFit, own_layouts
from jobs.planner.can_it_run.plans import METHODS
from jobs.planner.diffusion.can_it_run import compare_for_diffusion
from jobs.planner.diffusion.job import DiffusionJob
from jobs.planner.job import Fleet, Job
from jobs.planner.result import Interval, JobInvalid
from jobs.planner.sensitivity import sensitivities
from jobs.planner.shapes.said import parameters_text
from jobs.planning.hardware_options import hardware_options
from jobs.planning.search_pool import answer_apart
from jobs.planning.settings import constants_of, prices_of

_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei", "intel": "Intel"}
_EXAMPLES = (
    ("qwen2.5-7b", "grpo", "h100-sxm"),
    ("llama-3.1-70b", "sft-lora", "a100-80-sxm"),
    ("qwen3-30b-a3b", "grpo", "h200-sxm"),
    ("llama-3.1-8b", "sft-qlora", "rtx-4090"),
    ("flux.1-dev", "grpo-lora", "h100-sxm"),
)

METHOD_WORDS = {
    "sft": gettext_lazy("SFT, all weights"),
    "sft-lora": gettext_lazy("SFT with LoRA"),
    "sft-qlora": gettext_lazy("SFT with QLoRA (4-bit weights)"),
    "dpo": gettext_lazy("DPO, all weights"),
    "dpo-lora": gettext_lazy("DPO with LoRA"),
    "rm": gettext_lazy("Reward model, all weights"),
    "grpo": gettext_lazy("GRPO, all weights"),
    "grpo-lora": gettext_lazy("GRPO with LoRA"),
    "ppo": gettext_lazy("PPO, all weights"),
}
_ANSWERS = {
    "yes": ("ready", gettext_lazy("yes")),
    "possible": ("warning", gettext_lazy("possible")),
    "unknown": ("warning", gettext_lazy("unknown")),
    "no": ("failed", gettext_lazy("no")),
}
"""Answers from the best on: their states and words."""
_BEARINGS = {
    "supports": ("ready", gettext_lazy("supports it")),
    "contradicts": ("failed", gettext_lazy("contradicts it")),
    "says nothing": ("missing", gettext_lazy("says nothing")),
}


_VERDICTS: Mapping[str, tuple[str, Any]] = {
    "fits": ("ready", gettext_lazy("fits")),
    "tight": ("warning", gettext_lazy("tight")),
    "no": ("failed", gettext_lazy("does not fit")),
}
LAYOUT_WORDS: Mapping[str, Any] = {
    "split": pgettext_lazy("layout of roles", "Split"),
    "shared": gettext_lazy("Shared"),
    "colocated": gettext_lazy("Colocated"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobOnHardware:
    """A job on hardware that was made for it."""

    job: Job
    fleet: Fleet
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedRow:
    """The fewest devices with this much in host memory; `bar`: the phase that binds. `is_least`: fewest of all.
    `is_tight`: so near the limit that a little more would not fit."""

    label: str
    devices: str
    layout: str
    phase: str
    bar: MemoryRow | None
    limit_x: str
    step: str
    host: str
    disk: str
    is_least: bool
    is_tight: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One hardware of the comparison: the practical minimum, the fewest devices at all (`possible`) and their step;
    `bar` is of the layout whose `devices`, time and cost are shown."""

    id: str
    label: str
    state: str
    word: str
    reason: str
    practical: str
    doubt: str
    possible: str
    possible_doubt: str
    possible_step: str
    devices: str
    bar: MemoryRow | None
    limit_x: str
    phase: str
    step: str
    cost: str
    bearing: tuple[str, str] | None
    address: str
    is_shown: bool


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


def devices_page(question: HardwareQuestion, project: Project | None) -> dict[str, object]:
    """Return the context of the tab."""
    context: dict[str, object] = {
        "question": question,
        "problems": question.problems,
        "methods": list(METHOD_WORDS.items()),
        "known_models": [(each.id, each.label) for each in models().values()],
        "hardware": _hardware_choices(question.on),
        "most_options": MAX_OPTIONS,
        "diffusion_models": known_diffusion_models(),
        "facts": _facts(question),
        "read_url": address_of(question, read=True) if question.can_be_read else "",
    }
    if not question.is_asked:
        return context | {"examples": _examples(), "published": published_answer(None, "")}
    if question.shape is None and question.pictured is None:
        is_size = question.size is not None
        return context | {"published": published_answer(question.size, _table(question)) if is_size else None}
    if question.problems:
        return context
    try:
        options = _compare(question, project)
    except JobInvalid as invalid:
        return context | {"problems": {invalid.field: str(invalid)}}
    currency = project.currency if project is not None else "USD"
    shown = next((o for o in options if o.accelerator.id == question.show), _best(options))
    return context | {
        "options": [_option(option, question, currency, is_shown=option is shown) for option in options],
        "has_costs": any(option.cost_per_step for option in options),
        "trained_on": picture_note(question.pictured) if question.pictured is not None else "",
        "verdict": _overall(options, shown, question),
        "detail": _detail(shown, question, project),
    }


def _compare(question: HardwareQuestion, project: Project | None) -> tuple[HardwareOption, ...]:
    """Return the answer for each hardware, of a language model or of a diffusion transformer."""
    on = [accelerators()[name] for name in question.on]
    prices, constants = prices_of(project), constants_of(project)
    if question.shape is not None:
        demand = question.demand
        return hardware_options(
            answer_apart,
            compare_hardware,
            question.shape,
            on,
            question.method,
            question.devices,
            demand=demand,
            prices=prices,
            constants=constants,
            within_hours=question.within_hours,
            host_bytes=question.host_bytes,
        )
    if question.pictured is None:
        return ()
    pictured = question.pictured
    return hardware_options(
        answer_apart,
        compare_for_diffusion,
        pictured.shape,
        on,
        question.method,
        question.devices,
        picture=pictured.picture,
        prices=prices,
        constants=constants,
        within_hours=question.within_hours,
        host_bytes=question.host_bytes,
    )


def _hardware_choices(chosen: tuple[str, ...]) -> list[tuple[str, list[tuple[Accelerator, bool]]]]:
    """Return (vendor, [(accelerator, whether it is chosen)]) of everything that can be chosen, most memory first."""
    by_vendor: dict[str, list[tuple[Accelerator, bool]]] = {}
    for each in sorted(accelerators().values(), key=lambda each: (-each.memory_bytes, each.label)):
        by_vendor.setdefault(_VENDORS[each.vendor], []).append((each, each.id in chosen))
    return [(vendor, by_vendor[vendor]) for vendor in _VENDORS.values() if vendor in by_vendor]


def _facts(question: HardwareQuestion) -> tuple[tuple[str, str], ...]:
    """Return what the shape says, counted and not rounded."""
    if question.pictured is not None:
        return picture_facts(question.pictured)
    shape = question.shape
    if shape is None:
        return ()
    facts = [(_("Parameters"), in_words(parameters_text(shape), _))]
    if shape.experts:
        facts.append((_("Per token"), f"{shape.active_parameters:,}"))
        facts.append((_("Experts"), _("%(each)s of %(all)s") % {"each": shape.experts_per_token, "all": shape.experts}))
    facts.append((_("Layers"), f"{shape.num_layers:,}"))
    facts.append((_("Hidden size"), f"{shape.hidden:,}"))
    facts.append((_("Context"), f"{shape.max_positions:,}" if shape.max_positions else "—"))
    return tuple(facts)


def _best(options: tuple[HardwareOption, ...]) -> HardwareOption:
    """Return the hardware with the best answer, of those the one that takes the fewest devices, then the least time."""
    ranks = list(_ANSWERS)

    def rank(option: HardwareOption) -> tuple[int, int, float]:
        verdict = option.verdict
        return ranks.index(verdict.answer), _headline(verdict).num_devices or MAX_DEVICES, _seconds(verdict)

    return min(options, key=rank)


def _overall(
    options: tuple[HardwareOption, ...], shown: HardwareOption, question: HardwareQuestion
) -> dict[str, object]:
    """Say in a sentence how it runs on the hardware whose row is shown and on how many of all, and what else there is
    to know of that one."""
    best, answer = shown.verdict, shown.verdict.answer
    able = [option for option in options if option.verdict.answer == "yes"]
    state, word = _ANSWERS[answer]
    words = {"method": str(METHOD_WORDS[question.method]), "n": len(able), "all": len(options)}
    need = _headline(best)
    words |= {"devices": _times(need.num_devices), "label": best.accelerator.label, "step": seconds_text(_step(need))}
    text = {
        "yes": _("%(method)s: from %(devices)s %(label)s on, %(step)s a step."),
        "possible": _("%(method)s: possible on %(devices)s %(label)s, and not practical: %(step)s a step."),
        "unknown": _("%(method)s: close to the limit; only a probe run can tell."),
        "no": _("%(method)s: it fits on none of these."),
    }[answer]
    if answer == "yes" and question.devices is not None:
        text = _("%(method)s: on %(devices)s %(label)s, %(step)s a step.")
    if answer == "no" and any(option.verdict.answer != "no" for option in options):
        text = _("%(method)s: it does not fit on %(label)s.")
    if able and len(options) > 1:
        fits = ngettext("It runs on %(n)s of %(all)s.", "It runs on %(n)s of these %(all)s accelerators.", len(options))
        text = f"{text} {fits}"
    lines = (how(need), *best.more) if answer == "yes" else (best.summary, *best.more)
    return {"state": state, "word": str(word), "text": text % words, "lines": [in_words(line, _) for line in lines]}


def _headline(verdict: FitVerdict) -> DeviceNeed:
    """Return the layout that the headline goes by."""
    need = verdict.at if verdict.num_devices is not None else verdict.practical or verdict.possible or verdict.at
    return need if need is not None else verdict.needs[-1]


def _seconds(verdict: FitVerdict) -> float:
    step = _step(_headline(verdict))
    return step.middle if step is not None else 0.0


def _step(need: DeviceNeed | None) -> Interval | None:
    return need.estimate.time.step if need is not None and need.estimate is not None and need.num_devices else None


def _option(option: HardwareOption, question: HardwareQuestion, currency: str, *, is_shown: bool) -> OptionRow:
    verdict = option.verdict
    state, word = _ANSWERS[verdict.answer]
    panel = _panel(verdict.at)
    bar = _binding(panel)
    bearings = [each.bearing for each in verdict.published]
    bearing = next((b for b in ("contradicts", "supports") if b in bearings), None)
    return OptionRow(
        id=option.accelerator.id,
        label=option.accelerator.label,
        state=state,
        word=str(word),
        reason=in_words(verdict.summary, _),
        practical=_count(verdict.practical),
        doubt=_doubt(verdict.practical),
        possible=_count(verdict.fewest_at_all),
        possible_doubt=_doubt(verdict.fewest_at_all),
        possible_step=seconds_text(_step(verdict.fewest_at_all)),
        devices=_times(verdict.at.num_devices if verdict.at is not None else None),
        bar=bar,
        limit_x=panel.limit_x if panel is not None else "",
        phase=phase_label(verdict.at.phase) if verdict.at is not None else "—",
        step=seconds_text(option.step),
        cost=interval_text(option.cost_per_step, unit=currency),
        bearing=(_BEARINGS[bearing][0], str(_BEARINGS[bearing][1])) if bearing else None,
        address=address_of(question, show=option.accelerator.id),
        is_shown=is_shown,
    )


def _detail(option: HardwareOption, question: HardwareQuestion, project: Project | None) -> Detail:
    verdict = option.verdict
    at = verdict.at
    least = verdict.practical or verdict.possible
    fits = verdict.answer != "no" and at is not None
    return Detail(
        label=option.accelerator.label,
        needs=tuple(_need(need, is_least=need is least) for need in _shown_needs(verdict)),
        layout=_layout(at),
        devices=_times(at.num_devices if at is not None else None),
        is_recommended=verdict.recommended is not None and at is verdict.recommended,
        plan=_panel(at),
        largest_terms=_largest_terms(at, project),
        published=tuple(_published(each) for each in verdict.published),
        own=_own(option.accelerator, question, project),
        plan_url=_plan_url(question, option.accelerator, at) if fits else "",
    )


def _shown_needs(verdict: FitVerdict) -> tuple[DeviceNeed, ...]:
    """Return the needs of every way by what sits on the host, and the practical minimum where it is none of them: in
    the place of the one of its way that takes as many devices, else after it."""
    needs, best = [*verdict.needs, *verdict.others], verdict.practical
    if best is not None and all(need is not best for need in needs):
        index = next((n for n, need in enumerate(needs) if need.on_host == best.on_host), len(needs))
        if index < len(needs) and needs[index].num_devices == best.num_devices:
            needs[index] = best
        else:
            needs.insert(index + 1, best)
    return tuple(needs)


def _need(need: DeviceNeed, *, is_least: bool) -> NeedRow:
    panel = _panel(need)
    fits = need.num_devices is not None
    return NeedRow(
        label=_(need.label),
        devices=_count(need),
        layout=_layout(need) if fits else "",
        phase=phase_label(need.phase) if need.phase else "—",
        bar=_binding(panel),
        limit_x=panel.limit_x if panel is not None else "",
        step=seconds_text(_step(need)),
        host=size(need.estimate.host_bytes) if fits and need.estimate is not None else "—",
        disk=size(need.estimate.checkpoint_bytes) if fits and need.estimate is not None else "—",
        is_least=is_least,
        is_tight=need.is_tight,
    )


def _own(accelerator: Accelerator, question: HardwareQuestion, project: Project | None) -> tuple[OwnLayoutRow, ...]:
    """Return the built-in trainer's layouts of GRPO with KL; none of another method, of pictures, or without bf16."""
    if question.shape is None or question.method != "grpo" or not accelerator.has_bf16:
        return ()
    fits = own_layouts(question.shape, accelerator, question.demand, constants=constants_of(project))
    return tuple(_own_row(each, accelerator) for each in fits)


def _own_row(each: OwnLayoutFit, accelerator: Accelerator) -> OwnLayoutRow:
    label, least = LAYOUT_WORDS[each.layout], LEAST_DEVICES[each.layout]
    estimate, devices = each.estimate, f"{each.num_devices:,}"
    if estimate is None or each.job is None:
        too_few = each.num_devices < least
        word = _("takes %(n)s at least") % {"n": least} if too_few else _("cannot be laid out")
        state, phase, bar, limit_x, step = "missing", "—", None, "", "—"
    else:
        fleet = Fleet(accelerator=accelerator, num_devices=each.num_devices)
        panel = estimate_panel(estimate, _JobOnHardware(job=each.job, fleet=fleet))
        state, word = _VERDICTS[estimate.verdict]
        phase, bar, limit_x = phase_label(estimate.phase), _binding(panel), panel.limit_x
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


def _doubt(need: DeviceNeed | None) -> str:
    """Say how near the limit a tight layout is, "" for one that is not."""
    return in_words(doubt(need), _) if need is not None and need.is_tight else ""


def _panel(need: DeviceNeed | None) -> PlanPanel | None:
    if need is None or need.estimate is None or need.job is None:
        return None
    return estimate_panel(need.estimate, _JobOnHardware(job=need.job, fleet=need.job.fleet))


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


def _binding(panel: PlanPanel | None) -> MemoryRow | None:
    rows = [row for pool in panel.pools for row in pool.rows if row.is_binding] if panel is not None else []
    return rows[0] if rows else None


def _layout(need: DeviceNeed | None) -> str:
    """Name a layout as its field does: FSDP over 8, TP 4 × PP 2, 2 engines × TP 4."""
    if need is None or need.job is None:
        return ""
    job, layout = need.job, need.job.policy.layout
    if job.policy.family == "megatron":
        sizes = (("TP", layout.tensor), ("PP", layout.pipeline), ("EP", layout.expert), ("DP", layout.data))
        layout_text = "Megatron, " + " × ".join(f"{name} {size}" for name, size in sizes if size > 1)
    else:
        name = f"DeepSpeed ZeRO-{layout.shards}" if job.policy.family == "deepspeed" else "FSDP"
        layout_text = (
            _("%(name)s over %(n)s") % {"name": name, "n": layout.num_devices} if layout.num_devices > 1 else name
        )
    layout_text = layout_text.removesuffix(", ")
    if job.engine is None:
        return layout_text
    text = ngettext("%(n)s vLLM engine × TP %(tensor)s", "%(n)s vLLM engines × TP %(tensor)s", job.engine.num_engines)
    return f"{layout_text}; {text % {'n': job.engine.num_engines, 'tensor': job.engine.tensor}}"


def _published(run: PublishedRun) -> PublishedRow:
    row = run.row
    state, word = _BEARINGS[run.bearing]
    reason = {
        "supports": _("By this estimate no more devices are needed."),
        "contradicts": _("By this estimate more devices are needed: one of the two is wrong."),
        "says nothing": _("It ran on devices with more memory, or one of the two is a mixture of experts."),
    }[run.bearing]
    return PublishedRow(each=shown_row(row), state=state, word=str(word), reason=reason)


def _count(need: DeviceNeed | None) -> str:
    return f"{need.num_devices:,}" if need is not None and need.num_devices is not None else "—"


def _times(number: int | None) -> str:
    return f"{number:,} ×" if number is not None else "—"


def _table(question: HardwareQuestion) -> str:
    """Return what the published table calls the method, "" where it has none."""
    return METHODS[question.method].table


def _examples() -> list[dict[str, str]]:
    labels = {name: each.label for name, each in models().items()} | dict(known_diffusion_models())
    return [
        {
            "label": f"{labels[model]} · {METHOD_WORDS[method]} · {accelerators()[on].label}",
            "address": f"{reverse('guide-devices')}?{urlencode({'model': model, 'method': method, 'on': on})}",
        }
        for model, method, on in _EXAMPLES
    ]
