"""What the machines of a run did."""

import numpy as np
from django.http import HttpRequest
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS
from console.api.visible import run_for
from jobs.telemetry.chunks import Floats
from jobs.telemetry.fleet import MachineReadings, read_fleet

router = Router(tags=["runs"])

Values = list[float | None]


class FleetLaneOut(Schema):
    """A node, a device of it, or the process of a role and rank on it. null: nothing was read by then."""

    kind: str = Field(description="node, device or process")
    node: int = Field(description="0 is the runner's; -1 where it is not known")
    device: int = Field(description="-1 where it is none")
    role: str
    rank: int
    utilization: Values = Field(description="Shares")
    memory_bytes: Values
    memory_share: Values = Field(description="Of the node's or the device's memory")


class FleetBandOut(Schema):
    """Least, middle and most over all lanes of a kind at each time."""

    kind: str
    measure: str = Field(description="utilization or memory_share")
    low: Values
    middle: Values
    high: Values


class FleetOut(Schema):
    """Readings of the newest attempt at `times` (Unix ns, as texts); `node_names` by index, where they are known."""

    times: list[str]
    node_names: dict[int, str]
    lanes: list[FleetLaneOut]
    bands: list[FleetBandOut]


@router.get("/{run_id}/system", response={200: FleetOut, **REFUSALS}, summary="What its machines did")
def read_system(request: HttpRequest, run_id: str) -> FleetOut:
    """Return utilization and memory of nodes, devices and processes over the newest attempt, at up to 240 times."""
    fleet = read_fleet(run_for(request, run_id))
    return FleetOut(
        times=[str(time) for time in fleet.times.tolist()],
        node_names=dict(fleet.node_names),
        lanes=[
            FleetLaneOut(
                kind=lane.kind,
                node=lane.node,
                device=lane.device,
                role=lane.role,
                rank=lane.rank,
                utilization=_values(fleet.utilization[row], 3),
                memory_bytes=_values(fleet.memory_bytes[row], 0),
                memory_share=_values(fleet.memory_share[row], 3),
            )
            for row, lane in enumerate(fleet.lanes)
        ],
        bands=_bands(fleet),
    )


def _bands(fleet: MachineReadings) -> list[FleetBandOut]:
    return [
        FleetBandOut(
            kind=band.kind,
            measure=measure,
            low=_values(band.low, 3),
            middle=_values(band.middle, 3),
            high=_values(band.high, 3),
        )
        for measure, table in (("utilization", fleet.utilization), ("memory_share", fleet.memory_share))
        for band in fleet.bands(table)
    ]


def _values(row: Floats, digits: int) -> Values:
    return [value if np.isfinite(value) else None for value in np.round(row, digits).tolist()]
