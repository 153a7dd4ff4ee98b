"""What *Can it run?* is told and says of a layout on the API, of both kinds of models."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from console.api.planner.estimate_schema import PlanInterval
from jobs.planner.can_it_run.headline import doubt, share_of
from jobs.planner.can_it_run.plans import Way
from jobs.planner.can_it_run.verdict import ASSUMED_HOST_BYTES, MOST_HOURS, DeviceNeed, FitVerdict

WithinHours = Annotated[float | None, Field(strict=True, gt=0, le=MOST_HOURS)]
HostGb = Annotated[float | None, Field(strict=True, gt=0, le=1_000_000)]
WITHIN_HOURS = "Hours that a practical step takes at most; null: one, and no waste of devices"
HOST_GB = f"RAM of a node, GB; null: {ASSUMED_HOST_BYTES / 1e9:g} for each device that is used"


def bytes_of(host_gb: float | None) -> int:
    """Return the bytes of a node's RAM, 0 if nobody said."""
    return round((host_gb or 0.0) * 1e9)


class LayoutNeed(BaseModel):
    """The fewest devices in one way to train, null: with none of those that were tried; the phase that binds there,
    what it takes, and whether it is tight, or of the nearest miss. `share`: the most that it takes of a device or of a
    node's host memory; `doubt`: how far that may be off, where it is tight; `disk_bytes`: of one checkpoint."""

    on_host: Way
    label: str
    devices: int | None
    phase: str
    verdict: Literal["fits", "tight", "no"] | None
    step: PlanInterval | None
    host_bytes: int | None
    disk_bytes: int | None
    share: float | None
    doubt: str

    @classmethod
    def of(cls, need: DeviceNeed) -> "LayoutNeed":
        """Return a need as the API gives it."""
        estimate = need.estimate
        is_there = estimate is not None and need.num_devices is not None
        return cls(
            on_host=need.on_host,
            label=need.label,
            devices=need.num_devices,
            phase=need.phase,
            verdict=None if estimate is None else estimate.verdict,
            step=PlanInterval.of(estimate.time.step) if estimate is not None and is_there else None,
            host_bytes=None if estimate is None else estimate.host_bytes,
            disk_bytes=None if estimate is None else estimate.checkpoint_bytes,
            share=share_of(need),
            doubt=str(doubt(need)) if need.is_tight else "",
        )


class FitAnswer(BaseModel):
    """Whether it runs on one hardware, in a sentence (`says`) and what stands under it (`more`). Possible: it fits, but
    not practically. `practical`: the fewest devices whose step is short enough, `possible`: fewer ones, whose step is
    not; `needs`: less on the host first; `others`: further ways to train that take fewer devices."""

    accelerator: str
    answer: Literal["yes", "possible", "no", "unknown"]
    says: str
    more: list[str]
    practical: LayoutNeed | None
    possible: LayoutNeed | None
    needs: list[LayoutNeed]
    others: list[LayoutNeed]
    recommended: int | None


def answer_fields(verdict: FitVerdict) -> dict[str, Any]:
    """Return the fields of a FitAnswer."""
    return {
        "accelerator": verdict.accelerator.id,
        "answer": verdict.answer,
        "says": str(verdict.summary),
        "more": [str(line) for line in verdict.more],
        "practical": None if verdict.practical is None else LayoutNeed.of(verdict.practical),
        "possible": None if verdict.possible is None else LayoutNeed.of(verdict.possible),
        "needs": [LayoutNeed.of(need) for need in verdict.needs],
        "others": [LayoutNeed.of(need) for need in verdict.others],
        "recommended": None if verdict.recommended is None else verdict.recommended.num_devices,
    }
