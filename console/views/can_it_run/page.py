"""Can it run? A model, hardware and a method in; the planner's answer and the published configurations out.

It needs no cluster and no trainer.
"""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.guide.device_answer import published_answer
from console.labels.catalog import phase_label
from console.views.can_it_run.detail import BEARINGS, detail
from console.views.can_it_run.diffusion import known_diffusion_models, picture_facts, picture_note
from console.views.can_it_run.needs import binding_row, count_text, doubt_text, headline, panel_of, step_of, times_text
from console.views.can_it_run.question import MAX_DEVICES, MAX_OPTIONS, HardwareQuestion, address_of
from console.views.plan.panel import MemoryRow, interval_text, seconds_text
from jobs.catalog.accelerator import Accelerator, accelerators
from jobs.catalog.model import models
from jobs.catalog.sentence import in_words
from jobs.models import Project
from jobs.planner.can_it_run.headline import how
from jobs.planner.can_it_run.language_models import FitVerdict, HardwareOption, compare_hardware
from jobs.planner.can_it_run.plans import METHODS
from jobs.planner.diffusion.can_it_run import compare_for_diffusion
from jobs.planner.result import JobInvalid
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
_METHOD_WORDS = {
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


def devices_page(question: HardwareQuestion, project: Project | None) -> dict[str, object]:
    """Return the context of the tab."""
    context: dict[str, object] = {
        "question": question,
        "problems": question.problems,
        "methods": list(_METHOD_WORDS.items()),
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
        "detail": detail(shown, question, project),
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
        return ranks.index(verdict.answer), headline(verdict).num_devices or MAX_DEVICES, _seconds(verdict)

    return min(options, key=rank)


def _overall(
    options: tuple[HardwareOption, ...], shown: HardwareOption, question: HardwareQuestion
) -> dict[str, object]:
    """Say in a sentence how it runs on the hardware whose row is shown and on how many of all, and what else there is
    to know of that one."""
    best, answer = shown.verdict, shown.verdict.answer
    able = [option for option in options if option.verdict.answer == "yes"]
    state, word = _ANSWERS[answer]
    words = {"method": str(_METHOD_WORDS[question.method]), "n": len(able), "all": len(options)}
    need = headline(best)
    words |= {
        "devices": times_text(need.num_devices),
        "label": best.accelerator.label,
        "step": seconds_text(step_of(need)),
    }
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


def _seconds(verdict: FitVerdict) -> float:
    step = step_of(headline(verdict))
    return step.middle if step is not None else 0.0


def _option(option: HardwareOption, question: HardwareQuestion, currency: str, *, is_shown: bool) -> OptionRow:
    verdict = option.verdict
    state, word = _ANSWERS[verdict.answer]
    panel = panel_of(verdict.at)
    bar = binding_row(panel)
    bearings = [each.bearing for each in verdict.published]
    bearing = next((b for b in ("contradicts", "supports") if b in bearings), None)
    return OptionRow(
        id=option.accelerator.id,
        label=option.accelerator.label,
        state=state,
        word=str(word),
        reason=in_words(verdict.summary, _),
        practical=count_text(verdict.practical),
        doubt=doubt_text(verdict.practical),
        possible=count_text(verdict.fewest_at_all),
        possible_doubt=doubt_text(verdict.fewest_at_all),
        possible_step=seconds_text(step_of(verdict.fewest_at_all)),
        devices=times_text(verdict.at.num_devices if verdict.at is not None else None),
        bar=bar,
        limit_x=panel.limit_x if panel is not None else "",
        phase=phase_label(verdict.at.phase) if verdict.at is not None else "—",
        step=seconds_text(option.step),
        cost=interval_text(option.cost_per_step, unit=currency),
        bearing=(BEARINGS[bearing][0], str(BEARINGS[bearing][1])) if bearing else None,
        address=address_of(question, show=option.accelerator.id),
        is_shown=is_shown,
    )


def _table(question: HardwareQuestion) -> str:
    """Return what the published table calls the method, "" where it has none."""
    return METHODS[question.method].table


def _examples() -> list[dict[str, str]]:
    labels = {name: each.label for name, each in models().items()} | dict(known_diffusion_models())
    return [
        {
            "label": f"{labels[model]} · {_METHOD_WORDS[method]} · {accelerators()[on].label}",
            "address": f"{reverse('guide-devices')}?{urlencode({'model': model, 'method': method, 'on': on})}",
        }
        for model, method, on in _EXAMPLES
    ]
