"""What the API says of reading a timeline. Moments are Unix ns as decimal strings, lengths ns."""

from ninja import Field, Schema

from console.api.traces.schema import LinkedEventOut


class PlacedEventOut(LinkedEventOut):
    """An event in short, with the layer that it is of."""

    layer: int


class ArrowOut(Schema):
    """From one event to another; `backward` from an operator forward on, `collective` between two ranks."""

    kind: str = Field(description="launch, backward or collective")
    source: PlacedEventOut
    target: PlacedEventOut


class ArrowsOut(Schema):
    """Arrows of an event, both ways to the end of its chain; at most 64, and one for each other rank."""

    arrows: list[ArrowOut]


class NodeOut(Schema):
    """Equal paths of calls; `parent` is a place among the nodes, -1 for none. Times in ns."""

    name: str
    short: str
    category: str
    parent: int
    depth: int
    count: int
    total: int
    own: int


class CallerOut(Schema):
    """What a name was called from ("": nothing), and its own time when it was."""

    name: str
    own: int


class NameTimeOut(Schema):
    """Events of one name: `total` counts those inside another of the name once, `own` is without what they called."""

    name: str
    short: str
    category: str
    count: int
    total: int
    own: int
    callers: list[CallerOut]


class FlameOut(Schema):
    """Where the time of a window goes: `nodes` for a flame graph, parents first; `names` by own time."""

    begin: str
    end: str
    total: int
    events: int
    nodes: list[NodeOut]
    names: list[NameTimeOut]
    left_out: int = Field(description="nodes that were too small")


class TableRowOut(PlacedEventOut):
    """An event of the table."""

    short: str
    lane_name: str
    bytes: int


class TableOut(Schema):
    """Events that fulfil the conditions: how many there are, and some of them."""

    count: int
    rows: list[TableRowOut]


class SegmentOut(Schema):
    """A stretch of a critical path; `lane` -1 and no name where the trace tells of no work."""

    what: str = Field(description="device, host, launch or gap")
    layer: int
    lane: int
    name: str
    short: str
    category: str
    begin: str
    duration: int


class CriticalPathOut(Schema):
    """The critical path of a window, first to last; `device_share` of it is work of devices."""

    begin: str
    end: str
    device_share: float
    segments: list[SegmentOut]


class TrackOut(Schema):
    """A curve that a layer implies: queue depth of a stream, bandwidth of a kind of copies, utilisation of a device."""

    key: str
    kind: str = Field(description="queue, bandwidth or utilisation")
    name: str
    unit: str
    process: str
    device: int
    stream: int


class TracksOut(Schema):
    """The curves of a layer."""

    tracks: list[TrackOut]
