"""*Can it run?* on several kinds of hardware, each a question of its own, so that they are answered side by side.

One more kind of hardware then takes no new answer of those that were just compared (jobs.planning.search_pool).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.utils.translation import get_language, override

from jobs.catalog.accelerator import Accelerator
from jobs.planner.can_it_run.verdict import HardwareOption, in_order
from jobs.planning.search_pool import PlannerCall

Shape = TypeVar("Shape")

_MOST_AT_ONCE = 4
"""Questions of one comparison that wait at the same time, so that others' come between."""


def hardware_options(
    ask: PlannerCall,
    compare: Callable[..., tuple[HardwareOption, ...]],
    shape: Shape,
    on: Sequence[Accelerator],
    method: str,
    devices: int | None = None,
    **more: Any,
) -> tuple[HardwareOption, ...]:
    """Return the answer for each accelerator, in the order of a comparison.

    `compare`: compare_hardware of a language model, or compare_for_diffusion; `more` as it takes; `ask` calls it.
    Raises: JobInvalid.
    """
    language = get_language()

    def option(each: Accelerator) -> tuple[HardwareOption, ...]:
        with override(language):  # of the caller, in which a question that is refused is refused
            return ask(compare, shape, [each], method, devices, **more)

    if len(on) < 2:
        return in_order(each for kind in on for each in option(kind))
    with ThreadPoolExecutor(min(len(on), _MOST_AT_ONCE)) as threads:
        return in_order(each for answer in threads.map(option, on) for each in answer)
