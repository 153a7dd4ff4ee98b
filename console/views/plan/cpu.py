"""The plan of a run that goes on the CPU as pages show it: the bytes of the processes that train and score.

They share the node's memory, so that their sum decides. Seconds, and what vLLM takes, are not planned there.
"""

from django.utils.translation import gettext as _

from console.labels.catalog import phase_label
from console.labels.numbers import size
from console.views.plan.panel import (
    KeyNumber,
    PlanInput,
    PlanPanel,
    number_labels,
    pool_bars,
    terms_of,
    unit_of,
    unit_word,
)
from jobs.planner.result import TIGHT_FROM, TIGHT_TO, Estimate

_ROOM = 1.06  # of the scale, beside the longest bar


def cpu_panel(estimate: Estimate, plan_input: PlanInput) -> PlanPanel:
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
    unplanned = _("not planned on the CPU")
    message = _("Training and scoring take %(together)s of the node's %(there)s; %(phase)s: up to %(peak)s a process.")
    return PlanPanel(
        state="fits" if share <= TIGHT_FROM else "tight" if share <= TIGHT_TO else "no",
        message=message % words,
        is_over=share > 1,
        numbers=(
            *(KeyNumber(label=label, value="—", how=unplanned) for label in (step, run, hours)),
            KeyNumber(label=host, value=size(together), how=_("all processes that train and score, without vLLM")),
            KeyNumber(label=checkpoint, value=size(estimate.checkpoint_bytes), how=_("to resume from")),
        ),
        pools=tuple(pool_bars(pool, estimate, terms, peak * _ROOM, unit, is_host=True) for pool in pools),
        unit=unit_word(unit),
        terms=terms,
        notes=(_unplanned_note(has_vllm=len(pools) < len(estimate.pools)),),
    )


def _unplanned_note(*, has_vllm: bool) -> str:
    """Say what is not planned here; ranks that draw themselves are planned whole."""
    if has_vllm:
        return _("Seconds, and the memory of vLLM, are not planned on the CPU.")
    return _("Seconds are not planned on the CPU.")
