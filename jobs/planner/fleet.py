"""Hardware as people name it: so many nodes of so many devices of a kind, and what one costs."""

from jobs.catalog.accelerator import Accelerator, find_accelerator
from jobs.catalog.sentence import Sentence
from jobs.planner.job import Fleet

MAX_NODES = 4096
MAX_PER_NODE = 128


class FleetInvalid(ValueError):
    """Hardware that cannot be; `field` names the value at fault, the text is a sentence for people."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


def fleet_of(
    accelerator: Accelerator | str,
    *,
    nodes: int = 1,
    devices_per_node: int = 8,
    price: float | None = None,
    currency: str = "USD",
    host_bytes: int = 0,
) -> Fleet:
    """Return `nodes` of `devices_per_node` each. `price`: money per device hour; `host_bytes`: RAM per node, 0 unknown.

    Raises: FleetInvalid, naming the field; LookupError for an accelerator that is not known.
    """
    kind = find_accelerator(accelerator) if isinstance(accelerator, str) else accelerator
    for field, value, most in (("nodes", nodes, MAX_NODES), ("devices_per_node", devices_per_node, MAX_PER_NODE)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise FleetInvalid(
                field,
                Sentence(
                    "{value!r} is not allowed for {field}. Use a whole number from 1 to {most:,}.",
                    value=value,
                    field=field,
                    most=most,
                ),
            )
    if price is not None and not 0 <= price < 1e6:
        raise FleetInvalid(
            "price", Sentence("{price!r} is not allowed for the price. Use a number from 0 to 1,000,000.", price=price)
        )
    if host_bytes < 0:
        raise FleetInvalid(
            "host_bytes",
            Sentence("{host_bytes!r} is not allowed for host memory. Use 0 or more bytes.", host_bytes=host_bytes),
        )
    return Fleet(
        accelerator=kind,
        num_devices=nodes * devices_per_node,
        devices_per_node=devices_per_node,
        host_bytes=host_bytes,
        price=price,
        currency=currency,
    )
