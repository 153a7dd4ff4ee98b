"""Parts of an estimate on the API, which all of the planner's answers share. Sizes are bytes, times seconds, shares
parts of 1.

They are plain models of pydantic: the command line, which answers without a web framework, is spared loading one.
"""

from typing import Literal

from pydantic import BaseModel, Field

from jobs.planner.result import Interval, PhaseMemory, PoolEstimate
from jobs.planner.sensitivity import Sensitivity


class PlanInterval(BaseModel):
    """A quantity, and how sure it is."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, value: Interval) -> "PlanInterval":
        """Return an interval as the API gives it."""
        return cls(low=value.low, middle=value.middle, high=value.high)


class PlanPhase(BaseModel):
    """The peak of a phase on the device of a pool that holds most: bytes by term, and the same by who holds them."""

    phase: str
    role: str = Field(description="Who works then")
    total: int
    terms: dict[str, int]
    by_role: dict[str, dict[str, int]]

    @classmethod
    def of(cls, phase: PhaseMemory) -> "PlanPhase":
        """Return a phase as the API gives it."""
        return cls(
            phase=phase.phase,
            role=phase.role,
            total=phase.memory.total,
            terms={str(term): held for term, held in phase.memory.terms.items()},
            by_role={
                role: {str(term): held for term, held in memory.terms.items()} for role, memory in phase.by_role.items()
            },
        )


class PlanPool(BaseModel):
    """Devices that hold the same roles; `limit`: bytes of one that a job can use, `share`: the peak's part of it."""

    name: str
    num_devices: int
    limit: int
    share: float
    binding: str = Field(description="The phase that needs most")
    phases: list[PlanPhase]

    @classmethod
    def of(cls, pool: PoolEstimate) -> "PlanPool":
        """Return a pool as the API gives it."""
        return cls(
            name=pool.name,
            num_devices=pool.num_devices,
            limit=pool.limit,
            share=pool.share,
            binding=pool.binding.phase,
            phases=[PlanPhase.of(phase) for phase in pool.phases],
        )


class PlanSensitivity(BaseModel):
    """A constant, and the answer over its range from `low` to `high`: bytes of the pool that binds and seconds of a
    step, from the least to the most with what they are now between; `share`: how far whichever moves more does."""

    name: str
    label: str
    value: float
    low: float
    high: float
    unit: str
    is_measured: bool
    needed: PlanInterval
    seconds: PlanInterval
    verdicts: list[Literal["fits", "tight", "no"]] = Field(description="At low and at high")
    share: float

    @classmethod
    def of(cls, sensitivity: Sensitivity) -> "PlanSensitivity":
        """Return a sensitivity as the API gives it."""
        constant = sensitivity.constant
        return cls(
            name=constant.name,
            label=constant.label,
            value=constant.value,
            low=constant.low,
            high=constant.high,
            unit=constant.unit,
            is_measured=constant.evidence == "measured",
            needed=PlanInterval.of(sensitivity.needed),
            seconds=PlanInterval.of(sensitivity.seconds),
            verdicts=list(sensitivity.verdicts),
            share=sensitivity.share,
        )
