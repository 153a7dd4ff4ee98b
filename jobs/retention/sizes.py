"""How much a run takes: rows and files of the console, and checkpoints on the cluster."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db.models import Sum

from jobs.models import Artifact, Capture, Layer
from jobs.storage.usage import use_of_runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """Bytes that a run takes: `here` in rows and files of the console, `cluster` in checkpoints on the cluster."""

    here: int = 0
    cluster: int = 0


def sizes_of(run_ids: Collection[str]) -> Mapping[str, RunSize]:
    """Return run id -> size; `here` as quotas count it."""
    cluster = _checkpoint_bytes(run_ids)
    return {pk: RunSize(here=use.total, cluster=cluster.get(pk, 0)) for pk, use in use_of_runs(run_ids).items()}


def capture_bytes(capture: Capture) -> int:
    """Return the bytes of a capture's files, and of what was made of them."""
    files = capture.files.aggregate(n=Sum("received"))["n"] or 0
    facts = Layer.objects.filter(trace__capture=capture).values_list("facts", flat=True)
    return files + sum(each.get("bytes", 0) for each in facts)


def _checkpoint_bytes(run_ids: Collection[str]) -> Mapping[str, int]:
    """Return run id -> bytes of its checkpoints that nobody deleted."""
    taken: dict[str, int] = defaultdict(int)
    rows = Artifact.objects.filter(run__in=run_ids, type="checkpoint")
    for run_id, size, meta in rows.values_list("run_id", "size", "meta"):
        taken[run_id] += 0 if meta.get("removed") else size
    return taken
