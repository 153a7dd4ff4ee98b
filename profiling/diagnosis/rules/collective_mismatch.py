"""Mismatched collectives in a collective: one never calls it, or calls another one, and the others wait for ever."""

from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.diagnosis.flights import Parting, flights, partings
from profiling.evidence import Evidence

_LEAST_SECONDS = 30.0
_MOST_RANKS = 8


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    dumps = flights(evidence)
    if len(dumps) < 2:
        return InsufficientData(
            what="collectives",
            text="It takes dumps of torch's flight recorder of two ranks or more: start the processes with "
            "TORCH_FR_BUFFER_SIZE=2000, and bring the files together.",
        )
    begin = min(one.recorded.store.begin for one in dumps)
    end = max(one.recorded.store.end for one in dumps)
    mismatches = [one for one in partings(dumps) if one.waited is None or one.waited > _LEAST_SECONDS]
    if not mismatches:
        return Observation(value=0.0, begin=begin, end=end, words={"count": len(dumps)})
    first = min(mismatches, key=_begun)
    waiting = [call for call in first.calls.values() if call is not None]
    place = next((call.place for call in waiting if call.place), "")
    words = {
        "count": len(dumps),
        "group": first.group,
        "sequence": first.sequence,
        "calls": _calls_text(first),
        "place": f" ({place})" if place else "",
    }
    who = next((one for one in dumps if one.rank in first.ranks), None)
    return Observation(
        value=float(len(mismatches)),
        begin=_begun(first),
        end=end,
        words=words,
        role=who.recorded.role if who else "",
        rank=who.rank if who else -1,
    )


def _begun(parting: Parting) -> int:
    return min(call.created for call in parting.calls.values() if call is not None)


def _calls_text(parting: Parting) -> str:
    """Return what each rank called, those that differ from most first: "rank 1 —; rank 0 gloo:all_reduce [7] Float"."""
    order = sorted(parting.calls, key=lambda rank: (rank not in parting.ranks, rank))
    shown = [f"rank {rank} {call.words if (call := parting.calls[rank]) else '—'}" for rank in order[:_MOST_RANKS]]
    more = len(order) - len(shown)
    return "; ".join(shown) + (f"; +{more}" if more > 0 else "")


PLUGIN = Rule(
    title="Mismatched collectives",
    question="where",
    definition="Process groups with a collective that ranks call in different ways, or that some have waited in for "
    "more than 30 s (or for as long as is not known) while others have not called it.",
    unit="count",
    watch=0,
    bad=0,
    source="the analyser of torch's flight recorder; 30 s is ours",
    needs=("collectives",),
    fires="Collective {sequence} of process group {group} does not meet: {calls}{place}.",
    clear="The {count} ranks called the same collectives with the same sizes, and no rank is waited for.",
    advice="Look at the stacks of these ranks: a branch that only some take, batches of different number or size, an "
    "error that one rank swallowed.",
    evaluate=_evaluate,
)
