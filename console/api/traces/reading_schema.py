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
