"""A trainer's names of metrics in the dictionary's words.

`names` of a metric in jobs/catalog/metrics.toml lists what a trainer calls it, the best first: of two that say the same
only the first is taken, the other keeps its own name. What the dictionary does not know keeps its name, too.
"""

from collections.abc import Mapping
from functools import cache

from jobs.catalog.metric import metrics


@cache
def dictionary(trainer: str, algorithm: str) -> Mapping[str, tuple[int, str]]:
    """Return the trainer's name -> (place in the list, canonical name)."""
    found: dict[str, tuple[int, str]] = {}
    for whose in (trainer, f"{trainer}/{algorithm}"):
        for name, info in metrics().items():
            found |= {theirs: (place, name) for place, theirs in enumerate(info.names.get(whose, ()))}
    return found


def canonical(trainer: str, algorithm: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return one step's values by canonical name, in their order."""
    known = dictionary(trainer, algorithm)
    best: dict[str, tuple[int, str]] = {}
    for theirs in values:
        if theirs in known:
            place, name = known[theirs]
            best[name] = min(best.get(name, (place, theirs)), (place, theirs))
    chosen = {theirs: name for name, (_, theirs) in best.items()}
    return {chosen.get(theirs, _own(theirs)): value for theirs, value in values.items()}


def _own(name: str) -> str:
    """Return a name as a batch may carry it (docs/develop/protocol.md)."""
    return "".join(c if c.isprintable() and c != "," else "_" for c in name)[:120]
