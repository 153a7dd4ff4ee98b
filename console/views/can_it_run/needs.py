"""Layouts of an answer of *Can it run?*: how many devices each needs, in words and as a bar of its memory."""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.labels.catalog import phase_label
from console.labels.numbers import size
from console.views.plan.panel import MemoryRow, PlanPanel, estimate_panel, seconds_text
from jobs.catalog.sentence import in_words
from jobs.planner.can_it_run.headline import doubt
from jobs.planner.can_it_run.language_models import DeviceNeed, FitVerdict
from jobs.planner.job import Fleet, Job
from jobs.planner.result import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOnHardware:
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


def need_row(need: DeviceNeed, *, is_least: bool) -> NeedRow:
    """Return what the page shows of a need; a dash stands for what is not known."""
    panel = panel_of(need)
    fits = need.num_devices is not None
    return NeedRow(
        label=_(need.label),
        devices=count_text(need),
        layout=layout_text(need) if fits else "",
        phase=phase_label(need.phase) if need.phase else "—",
        bar=binding_row(panel),
        limit_x=panel.limit_x if panel is not None else "",
        step=seconds_text(step_of(need)),
        host=size(need.estimate.host_bytes) if fits and need.estimate is not None else "—",
        disk=size(need.estimate.checkpoint_bytes) if fits and need.estimate is not None else "—",
        is_least=is_least,
        is_tight=need.is_tight,
    )


def shown_needs(verdict: FitVerdict) -> tuple[DeviceNeed, ...]:
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


def headline(verdict: FitVerdict) -> DeviceNeed:
    """Return the layout that the headline goes by."""
    need = verdict.at if verdict.num_devices is not None else verdict.practical or verdict.possible or verdict.at
    return need if need is not None else verdict.needs[-1]


def step_of(need: DeviceNeed | None) -> Interval | None:
    """Return the seconds of a step of a layout, None where nothing fits."""
    return need.estimate.time.step if need is not None and need.estimate is not None and need.num_devices else None


def doubt_text(need: DeviceNeed | None) -> str:
    """Say how near the limit a tight layout is, "" for one that is not."""
    return in_words(doubt(need), _) if need is not None and need.is_tight else ""


def panel_of(need: DeviceNeed | None) -> PlanPanel | None:
    """Return the plan of a layout by phase, None without one."""
    if need is None or need.estimate is None or need.job is None:
        return None
    return estimate_panel(need.estimate, JobOnHardware(job=need.job, fleet=need.job.fleet))


def binding_row(panel: PlanPanel | None) -> MemoryRow | None:
    """Return the bar of the phase that binds, None without a plan."""
    rows = [row for pool in panel.pools for row in pool.rows if row.is_binding] if panel is not None else []
    return rows[0] if rows else None


def layout_text(need: DeviceNeed | None) -> str:
    """Name a layout as its field does: FSDP over 8, TP 4 × PP 2, 2 engines × TP 4."""
    if need is None or need.job is None:
        return ""
    job, layout = need.job, need.job.policy.layout
    if job.policy.family == "megatron":
        sizes = (("TP", layout.tensor), ("PP", layout.pipeline), ("EP", layout.expert), ("DP", layout.data))
        trained = ", ".join(filter(None, ("Megatron", " × ".join(f"{key} {n}" for key, n in sizes if n > 1))))
    else:
        trained = f"DeepSpeed ZeRO-{layout.shards}" if job.policy.family == "deepspeed" else "FSDP"
        if layout.num_devices > 1:
            trained = _("%(name)s over %(n)s") % {"name": trained, "n": layout.num_devices}
    if job.engine is None:
        return trained
    text = ngettext("%(n)s vLLM engine × TP %(tensor)s", "%(n)s vLLM engines × TP %(tensor)s", job.engine.num_engines)
    return f"{trained}; {text % {'n': job.engine.num_engines, 'tensor': job.engine.tensor}}"


def count_text(need: DeviceNeed | None) -> str:
    """Return how many devices a layout needs, a dash where nothing fits."""
    return f"{need.num_devices:,}" if need is not None and need.num_devices is not None else "—"


def times_text(number: int | None) -> str:
    """Return a number of devices as it stands before their name: "8 ×", a dash for none."""
    return f"{number:,} ×" if number is not None else "—"
