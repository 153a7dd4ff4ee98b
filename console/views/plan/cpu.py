"""The plan of a run that goes on the CPU as pages show it: the bytes of the processes that train and score.

They share the node's memory, so that their sum decides. What vLLM takes is not planned there; seconds are, once runs
there have told their pace (jobs.planning.joining).
"""

from collections.abc import Iterator

from django.utils.translation import gettext as _

from console.labels.catalog import phase_label
from console.labels.numbers import size
from console.views.plan.panel import (
    KeyNumber,
    PlanPanel,
    interval_text,
    number_labels,
    pool_bars,
    seconds_text,
    terms_of,
    unit_of,
    unit_word,
)
from jobs.planner.result import TIGHT_FROM, TIGHT_TO, Estimate
from jobs.planning.plan_vs_measured import STEP, seconds_on_cpu
from jobs.planning.question import PlannerQuestion

_ROOM = 1.06  # of the scale, beside the longest bar


def cpu_panel(estimate: Estimate, plan_input: PlannerQuestion) -> PlanPanel:
    """Return the panel of an estimate on a machine's own CPU."""
    pools = tuple(pool for pool in estimate.pools if pool.name != "vllm")
    largest = max(pools, key=lambda pool: pool.binding.memory.total)
    peak = largest.binding.memory.total
    together = sum(pool.binding.memory.total * pool.num_devices for pool in pools)
    there = plan_input.fleet.accelerator.usable_bytes
    share = together / there if there else 0.0
    unit, terms = unit_of(peak), terms_of(pools)
    words = {
        "together": size(together),
        "there": size(there),
        "phase": phase_label(largest.binding.phase),
        "peak": size(peak),
    }
    step, run, hours, host, checkpoint = number_labels()
    planned = seconds_on_cpu(estimate, plan_input.constants)
    notes = (*_notes(has_vllm=len(pools) < len(estimate.pools), has_seconds=STEP in planned), plan_input.lengths_note)
    message = _("Training and scoring take %(together)s of the node's %(there)s; %(phase)s: up to %(peak)s a process.")
    return PlanPanel(
        state="fits" if share <= TIGHT_FROM else "tight" if share <= TIGHT_TO else "no",
        message=message % words,
        is_over=share > 1,
        numbers=(
            *_seconds(estimate, (step, run, hours), is_planned=STEP in planned),
            KeyNumber(label=host, value=size(together), how=_("all processes that train and score, without vLLM")),
            KeyNumber(label=checkpoint, value=size(estimate.checkpoint_bytes), how=_("to resume from")),
        ),
        pools=tuple(pool_bars(pool, estimate, terms, peak * _ROOM, unit, is_host=True) for pool in pools),
        unit=unit_word(unit),
        terms=terms,
        notes=tuple(note for note in notes if note),
    )


def _seconds(estimate: Estimate, labels: tuple[str, str, str], *, is_planned: bool) -> Iterator[KeyNumber]:
    """Yield the step, the run and its hours, as far as runs on this CPU have told a pace."""
    step, run, hours = labels
    if not is_planned:
        for label in labels:
            yield KeyNumber(label=label, value="—", how=_("planned once a run of this kind has finished on the CPU"))
        return
    cost = estimate.cost
    yield KeyNumber(
        label=step, value=seconds_text(estimate.time.step), how=_("at the pace of finished runs on the CPU")
    )
    yield KeyNumber(label=run, value=seconds_text(cost.seconds), how=_("all steps, with checkpoints and restarts"))
    yield KeyNumber(label=hours, value=interval_text(cost.device_hours), how=_("run time times devices"))


def _notes(*, has_vllm: bool, has_seconds: bool) -> Iterator[str]:
    """Say what is not planned here; ranks that draw themselves are planned whole."""
    if not has_seconds:
        yield _("Seconds are planned on the CPU once a run of this kind has finished there.")
    if has_vllm:
        yield _("The memory of vLLM is not planned on the CPU.")
