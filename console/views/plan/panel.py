"""An estimate as pages show it: verdict in words, key numbers, bars of memory by phase and of a step's time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from console.labels.catalog import phase_label
from console.labels.memory_terms import TERM_WORDS
from console.labels.numbers import figure, size
from jobs.catalog.knob import knobs
from jobs.catalog.sentence import in_words
from jobs.planner.figures import seconds_span, span
from jobs.planner.job import Fleet, Job
from jobs.planner.result import (
    POOL_WORDS,
    TERMS,
    TIGHT_FROM,
    Estimate,
    Interval,
    PeakMemory,
    PhaseMemory,
    PoolEstimate,
    Term,
)

_GIB = 1 << 30
_ROOM = 1.06  # of the scale, so that the limit's line and its number stay inside
_FEWEST_PIXELS = 0.15  # per cent of the bar: thinner segments cannot be seen
_TEXT_WIDTH = 1.9  # per cent of a time bar that a letter of its labels takes where the panel is narrow

ROLE_WORDS = {name: gettext_lazy(word) for name, word in POOL_WORDS.items()}
VERDICT_WORDS = {
    "fits": gettext_lazy("Fits"),
    "tight": gettext_lazy("Fits, but tight"),
    "no": gettext_lazy("Does not fit"),
    "unknown": gettext_lazy("Unknown"),
}


class PlanInput(Protocol):
    """What an estimate answers: a job, the hardware that is there for it, and what was assumed before it was read."""

    @property
    def job(self) -> Job:
        """What is estimated."""

    @property
    def fleet(self) -> Fleet:
        """What there is."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, in sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNumber:
    """A key number: its label, its text, and how it comes about."""

    label: str
    value: str
    how: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBarSegment:
    """A part of a bar: `x` and `width` in per cent of the bar; `key` names its color."""

    key: str
    x: str
    width: str
    message: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRow:
    """What one role holds in a phase, term by term in the order of the legend; "" where it holds nothing."""

    role: str
    parts: tuple[str, ...]
    total: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """A phase on the fullest device of a pool. `key` names it across answers, so that it stays open."""

    key: str
    label: str
    segments: tuple[PlanBarSegment, ...]
    needed: str
    share: str
    message: str
    roles: tuple[RoleRow, ...]
    is_binding: bool
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBars:
    """Devices that hold the same roles, and their phases."""

    message: str
    rows: tuple[MemoryRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBars:
    """A step on a scale from 0 to its highest estimate; the whisker spans the interval."""

    segments: tuple[PlanBarSegment, ...]
    low_x: str
    high_x: str
    step: str
    message: str

    @property
    def label(self) -> str:
        """The segments in words, for who does not see them."""
        return ", ".join(segment.message for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPanel:
    """What the planner says of a run. Without an estimate `state` is unknown and `message` is the reason. `band`: how
    sure its memory is. `is_over`: more is needed than there is, whatever the verdict."""

    state: str
    message: str
    is_over: bool = False
    needs_config: bool = False
    is_unread: bool = False
    numbers: tuple[KeyNumber, ...] = ()
    pools: tuple[PoolBars, ...] = ()
    unit: str = "GiB"
    band: str = ""
    limit: str = ""
    limit_x: str = ""
    terms: tuple[Term, ...] = ()
    time: TimeBars | None = None
    notes: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The verdict in a word or two: above the limit, if by less than is known, it never says that it fits."""
        return _("May not fit") if self.state == "tight" and self.is_over else str(VERDICT_WORDS[self.state])

    @property
    def strip(self) -> tuple[KeyNumber, ...]:
        """The numbers that a narrow window shows of it while it is closed: the time of a step, and device hours."""
        return (self.numbers[0], self.numbers[2])

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """(term, label) of what the bars show."""
        return tuple((term, str(TERM_WORDS[term])) for term in self.terms)


def unknown_panel(message: str, *, needs_config: bool = False, is_unread: bool = False) -> PlanPanel:
    """Return the panel of a run that cannot be estimated: why, and dashes where the numbers would be.

    `is_unread`: its model was not read yet, which is still to be tried.
    """
    dashes = tuple(KeyNumber(label=label, value="—") for label in number_labels())
    return PlanPanel(state="unknown", message=message, needs_config=needs_config, is_unread=is_unread, numbers=dashes)


def estimate_panel(estimate: Estimate, plan_input: PlanInput) -> PlanPanel:
    """Return the panel of an estimate of what was asked."""
    limit = max(pool.limit for pool in estimate.pools)
    peak = max(pool.binding.memory.total for pool in estimate.pools)
    unit = unit_of(limit)
    scale = max(limit, peak) * _ROOM
    terms = terms_of(estimate.pools)
    is_short = plan_input.job.fleet.num_devices > plan_input.fleet.num_devices
    return PlanPanel(
        state="no" if is_short else estimate.verdict,
        message=_sentence(estimate, plan_input),
        is_over=any(pool.share > 1 for pool in estimate.pools),
        numbers=_numbers(estimate, plan_input.job.fleet),
        pools=tuple(pool_bars(pool, estimate, terms, scale, unit) for pool in estimate.pools),
        unit=unit_word(unit),
        band=f"± {share_text(estimate.band)}",
        limit=f"{limit / unit:.1f}",
        limit_x=f"{limit / scale * 100:.2f}",
        terms=terms,
        time=_time(estimate),
        notes=(*(in_words(note, _) for note in estimate.notes), *_unpriced(estimate)),
    )


def _unpriced(estimate: Estimate) -> tuple[str, ...]:
    """Return a sentence about knobs that change memory or time and that the planner does not use, if any."""
    if not estimate.unpriced:
        return ()
    labels = ", ".join(_(knobs()[knob_id].label) for knob_id in estimate.unpriced)
    return (_("The plan ignores: %(knobs)s.") % {"knobs": labels},)


def terms_of(pools: Iterable[PoolEstimate]) -> tuple[Term, ...]:
    """Return the terms that are there at all, in the order of the bars."""
    present = {term for pool in pools for phase in pool.phases for term in phase.memory.terms}
    return tuple(term for term in TERMS if term in present)


def unit_of(limit: int) -> int:
    """Return the bytes of the unit in which memory up to a limit is told."""
    return _GIB if limit >= 4 * _GIB else 1 << 20


def unit_word(unit: int) -> str:
    """Return what a unit is called."""
    return "GiB" if unit == _GIB else "MiB"


def devices_word(num: int, *, is_host: bool) -> str:
    """Return so many devices of a pool: GPUs, or processes of a machine that has none."""
    if is_host:
        return ngettext("%(n)s process", "%(n)s processes", num) % {"n": f"{num:,}"}
    return ngettext("%(n)s GPU", "%(n)s GPUs", num) % {"n": f"{num:,}"}


def interval_text(value: Interval | None, *, unit: str = "") -> str:
    """Return an estimate as the interval it is, without false digits: 98–131 s."""
    return "—" if value is None else f"{span(value)} {unit}".rstrip()


def share_text(share: float) -> str:
    """Return a share in per cent: 85 %."""
    return f"{share * 100:.0f} %"


def seconds_text(value: Interval | None) -> str:
    """Return an interval of seconds in the unit that suits it."""
    return "—" if value is None else in_words(seconds_span(value), _)


def number_labels() -> tuple[str, ...]:
    """Return the labels of the key numbers that are always there."""
    return (_("Step time"), _("Run time"), _("Device hours"), _("Host RAM"), _("Checkpoint"))


def _numbers(estimate: Estimate, fleet: Fleet) -> tuple[KeyNumber, ...]:
    step, run, hours, host, checkpoint = number_labels()
    cost = estimate.cost
    spread = _("from %(low)s to %(high)s tokens/s")
    ends = {"low": figure(estimate.time.tokens_per_second.low), "high": figure(estimate.time.tokens_per_second.high)}
    numbers = [
        KeyNumber(label=step, value=seconds_text(estimate.time.step), how=spread % ends),
        KeyNumber(label=run, value=seconds_text(cost.seconds), how=_("all steps, with checkpoints and restarts")),
        KeyNumber(label=hours, value=interval_text(cost.device_hours), how=_("run time times devices")),
    ]
    if cost.money is not None:
        how = _("%(price)s an hour for each device") % {"price": f"{fleet.price:,.2f} {cost.currency}"}
        numbers.append(KeyNumber(label=_("Cost"), value=interval_text(cost.money, unit=cost.currency), how=how))
    shared = _("on the fullest node, and %(shm)s of shared memory") % {"shm": size(estimate.shm_bytes)}
    if fleet.host_bytes:
        has = _("a node has %(size)s") % {"size": size(fleet.host_bytes)}
        shared = f"{shared}; {has}"
    exported = _("to resume from; the weights alone are %(size)s") % {"size": size(estimate.export_bytes)}
    numbers.append(KeyNumber(label=host, value=size(estimate.host_bytes), how=shared))
    numbers.append(KeyNumber(label=checkpoint, value=size(estimate.checkpoint_bytes), how=exported))
    return tuple(numbers)


def _sentence(estimate: Estimate, plan_input: PlanInput) -> str:
    """Return what decides, in a sentence: the phase, its devices, the limit, the term."""
    wanted, there = plan_input.job.fleet.num_devices, plan_input.fleet.num_devices
    if wanted > there:
        text = ngettext(
            "The run asks for %(n)s device; there are %(hardware)s.",
            "The run asks for %(n)s devices; there are %(hardware)s.",
            wanted,
        )
        return text % {"n": f"{wanted:,}", "hardware": devices_text(plan_input.fleet, there)}
    assumed = len(plan_input.notes) + len(plan_input.job.notes)
    pool = next(p for p in estimate.pools if p.name == estimate.pool)
    if estimate.verdict == "no" and pool.share <= TIGHT_FROM and len(estimate.notes) > assumed:
        return in_words(estimate.notes[assumed], _)  # there is free memory, and yet the engine does not start
    phase = next(p for p in pool.phases if p.phase == estimate.phase)
    unit = unit_of(pool.limit)
    words = {
        "phase": phase_label(phase.phase),
        "needed": f"{phase.memory.total / unit:,.1f}",
        "limit": f"{pool.limit / unit:,.1f} {unit_word(unit)}",
        "term": TERM_WORDS[estimate.term],
        "part": size(phase.memory.terms[estimate.term]),
        "pool": pool_word(pool),
    }
    if len(estimate.pools) == 1:
        return _("%(phase)s peaks at %(needed)s of %(limit)s; %(term)s: %(part)s of it.") % words
    return _("%(phase)s peaks at %(needed)s of %(limit)s on %(pool)s; %(term)s: %(part)s of it.") % words


def pool_word(pool: PoolEstimate) -> str:
    """Return what people call the devices of a pool, by who works there."""
    roles = dict.fromkeys(role for phase in pool.phases for role in phase.by_role)
    return " + ".join(str(ROLE_WORDS.get(role, role)) for role in roles)


def pool_bars(
    pool: PoolEstimate,
    estimate: Estimate,
    terms: tuple[Term, ...],
    scale: float,
    unit: int,
    *,
    is_host: bool = False,
) -> PoolBars:
    """Return the bars of a pool, on a scale and in a unit that all pools share."""
    return PoolBars(
        message=f"{pool_word(pool)}: {devices_word(pool.num_devices, is_host=is_host)}",
        rows=tuple(_row(phase, pool, estimate, terms, scale, unit) for phase in pool.phases),
    )


def _row(
    phase: PhaseMemory, pool: PoolEstimate, estimate: Estimate, terms: tuple[Term, ...], scale: float, unit: int
) -> MemoryRow:
    needed = phase.memory.total
    share = needed / pool.limit
    label = phase_label(phase.phase)
    return MemoryRow(
        key=f"{pool.name} {phase.phase}",
        label=label,
        segments=tuple(_segments(phase.memory, terms, scale)),
        needed=f"{needed / unit:,.1f}",
        share=share_text(share),
        message=_("%(phase)s: %(needed)s of %(limit)s")
        % {"phase": label, "needed": size(needed), "limit": size(pool.limit)},
        roles=tuple(
            RoleRow(
                role=str(ROLE_WORDS.get(role, role)),
                parts=tuple(f"{held.terms[term] / unit:,.1f}" if held.terms.get(term) else "" for term in terms),
                total=f"{held.total / unit:,.1f}",
            )
            for role, held in phase.by_role.items()
        ),
        is_binding=pool.name == estimate.pool and phase.phase == estimate.phase,
        is_over=share > 1,
    )


def _segments(memory: PeakMemory, terms: Iterable[Term], scale: float) -> Iterable[PlanBarSegment]:
    at = 0
    for term in terms:
        held = memory.terms.get(term, 0)
        width = held / scale * 100
        if width >= _FEWEST_PIXELS:
            message = f"{TERM_WORDS[term]}: {size(held)}"
            yield PlanBarSegment(key=term, x=f"{at / scale * 100:.2f}", width=f"{width:.2f}", message=message)
        at += held


def _time(estimate: Estimate) -> TimeBars:
    """Return the bar of a step. What overlaps is longer than the step: the scale then holds all phases."""
    step, phases = estimate.time.step, estimate.time.phases
    scale = max(step.high, sum(each.middle for each in phases.values())) or 1.0
    at, segments = 0.0, []
    for key, seconds in phases.items():
        width = seconds.middle / scale * 100
        if width >= _FEWEST_PIXELS:
            label = phase_label(key)
            segments.append(
                PlanBarSegment(
                    key=key,
                    x=f"{at:.2f}",
                    width=f"{width:.2f}",
                    message=f"{label}: {seconds_text(seconds)}",
                    label=label if width > len(label) * _TEXT_WIDTH + 2 else "",
                )
            )
        at += width
    slowest = phase_label(estimate.time.bottleneck)
    return TimeBars(
        segments=tuple(segments),
        low_x=f"{step.low / scale * 100:.2f}",
        high_x=f"{step.high / scale * 100:.2f}",
        step=seconds_text(step),
        message=_("middle %(middle)s; %(phase)s takes longest")
        % {
            "middle": seconds_text(Interval(low=step.middle, middle=step.middle, high=step.middle)),
            "phase": slowest,
        },
    )


def devices_text(fleet: Fleet, num_devices: int) -> str:
    """Return devices as people say them: 2 × 8 H100 SXM 80 GB."""
    label = fleet.accelerator.label
    if num_devices <= fleet.devices_per_node or num_devices % fleet.devices_per_node:
        return f"{num_devices} × {label}"
    nodes = num_devices // fleet.devices_per_node
    text = ngettext("%(n)s node of %(each)s × %(label)s", "%(n)s nodes of %(each)s × %(label)s", nodes)
    return text % {"n": nodes, "each": fleet.devices_per_node, "label": label}
