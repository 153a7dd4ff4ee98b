"""Which profilers the workers of an attempt have, as they told when they were ready, and which workers there are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import Run, RunEvent

_MAX_DIGITS = 8  # of a rank: whoever writes the note may write anything
_MAX_NODE = 120  # characters of a node's name, as above


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One process that can be recorded; `problems` maps each tool to "" (ready), or why not.

    `problems` is empty while the worker has not told. `node` is the name of its node, "" while that is not known.
    """

    role: str
    rank: int
    problems: Mapping[str, str]
    node: str = ""

    @property
    def name(self) -> str:
        """How people call it: "policy 0"."""
        return f"{self.role} {self.rank}"


def workers(*, run: Run, attempt: int) -> list[Worker]:
    """Return the workers of an attempt: those that have told, or, before, those that the run's spec asks for."""
    told = _told(run.pk, attempt)
    if told:
        return told
    # The stored spec, not the merged one: an attempt may only change how many ranks there are, and those will tell.
    try:
        spec = parse_spec(run.spec)
    except SpecInvalid:  # launched by an older console
        return []
    return [Worker(role=role, rank=rank, problems={}) for role, size in spec.workers.items() for rank in range(size)]


def cannot(tool: str, lacking: Sequence[Worker]) -> str:
    """Say which workers a tool cannot record, and why: each reason once."""
    by_reason: dict[str, list[Worker]] = {}
    for worker in lacking:
        by_reason.setdefault(worker.problems.get(tool) or _("it has not told yet."), []).append(worker)
    text = _("%(tool)s cannot record %(worker)s: %(why)s")
    return " ".join(text % {"tool": tool, "worker": names(who), "why": why} for why, who in by_reason.items())


def names(workers: Iterable[Worker]) -> str:
    """Return how people call several workers: "policy 0-3, vllm 0"."""
    by_role: dict[str, list[int]] = {}
    for worker in workers:
        by_role.setdefault(worker.role, []).append(worker.rank)
    parts = []
    for role, ranks in by_role.items():
        spans: list[list[int]] = []
        for rank in sorted(ranks):
            if spans and rank <= spans[-1][1] + 1:
                spans[-1][1] = rank
            else:
                spans.append([rank, rank])
        parts += [f"{role} {low}" if low == high else f"{role} {low}-{high}" for low, high in spans]
    return ", ".join(parts)


def _told(run_id: str, attempt: int) -> list[Worker]:
    notes = RunEvent.objects.filter(run_id=run_id, attempt=attempt, verb="note").order_by("-pk")
    data: Mapping[str, Any] = next((data for data in notes.values_list("data", flat=True) if _is_told(data)), {})
    places = data.get("places")
    node_of = places if isinstance(places, Mapping) else {}
    listed = []
    for name, tools in data.get("profilers", {}).items():
        role, _dash, rank = str(name).rpartition("-")
        if role and rank.isdecimal() and len(rank) < _MAX_DIGITS and isinstance(tools, Mapping):
            problems = {str(k): str(v) for k, v in tools.items()}
            node = str(node_of.get(name, ""))[:_MAX_NODE]
            listed.append(Worker(role=role, rank=int(rank), problems=problems, node=node))
    order = {"policy": 0, "critic": 1, "reference": 2, "reward": 3, "vllm": 4}
    return sorted(listed, key=lambda worker: (order.get(worker.role, 9), worker.role, worker.rank))


def _is_told(data: object) -> bool:
    return isinstance(data, Mapping) and isinstance(data.get("profilers"), Mapping)
