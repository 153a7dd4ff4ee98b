"""How much a run takes: rows and files of the console, and checkpoints on the cluster."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db.models import F, Sum
from django.db.models.functions import Length

from jobs.models import Artifact, Chunk, Frame, Layer, LogChunk, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """Bytes that a run takes: `here` in rows and files of the console, `cluster` in checkpoints on the cluster."""

    here: int = 0
    cluster: int = 0


def sizes_of(run_ids: Collection[str]) -> Mapping[str, RunSize]:
    """Return run id -> size. Rows count by their contents, without what a database adds."""
    here: dict[str, int] = defaultdict(int)
    texts = Length("prompt") + Length("completion") + Length("expected")
    for rows, key, length in (
        (Frame.objects.filter(run__in=run_ids), "run_id", Length("payload")),
        (Chunk.objects.filter(metric__run__in=run_ids), "metric__run_id", Length("blob")),
        (LogChunk.objects.filter(run__in=run_ids), "run_id", Length("text")),
        (Sample.objects.filter(run__in=run_ids), "run_id", texts),
        (Artifact.objects.filter(run__in=run_ids), "run_id", F("received")),
    ):
        for run_id, taken in rows.order_by().values_list(key).annotate(taken=Sum(length)):
            here[run_id] += taken or 0
    for run_id, taken in layer_bytes(run_ids).items():
        here[run_id] += taken
    cluster = checkpoint_bytes(run_ids)
    return {run_id: RunSize(here=here[run_id], cluster=cluster.get(run_id, 0)) for run_id in run_ids}


def layer_bytes(run_ids: Collection[str], *, capture_id: str = "") -> Mapping[str, int]:
    """Return run id -> bytes of the stores of its traces, and of the files that were uploaded to them."""
    taken: dict[str, int] = defaultdict(int)
    layers = Layer.objects.filter(trace__run__in=run_ids)
    if capture_id:
        layers = layers.filter(trace__capture=capture_id)
    for run_id, artifact, received, facts in layers.values_list("trace__run_id", "artifact", "received", "facts"):
        made = facts.get("bytes", 0) if isinstance(facts, dict) else 0
        taken[run_id] += (0 if artifact else received) + (made if isinstance(made, int) else 0)
    return taken


def checkpoint_bytes(run_ids: Collection[str]) -> Mapping[str, int]:
    """Return run id -> bytes of its checkpoints that nobody deleted."""
    taken: dict[str, int] = defaultdict(int)
    rows = Artifact.objects.filter(run__in=run_ids, type="checkpoint")
    for run_id, size, meta in rows.values_list("run_id", "size", "meta"):
        taken[run_id] += 0 if meta.get("removed") else size
    return taken
