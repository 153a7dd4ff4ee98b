"""All that `/metrics` says, as families of metrics: names and units as Prometheus' conventions have them.

A family is there with its HELP and TYPE even where it has no sample at the moment, so that a rule or a dashboard can be
held against what this console exposes. docs/operate/monitoring.md lists them.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import redis
from django.conf import settings
from django.db import DatabaseError
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from console.monitoring.requests import OWN
from jobs.cluster.ray_api import ClusterState
from jobs.models import STATES
from jobs.monitoring.runs import RunFacts, oldest_waits, run_counts, shown_runs
from jobs.monitoring.services import RedisFacts, database_bytes, disk_facts, redis_facts
from jobs.runs.cluster_use import cluster_in_use
from jobs.telemetry.heartbeats import process_name
from jobs.telemetry.streams import client

# Metric of the catalog -> what it is called here, and what it says.
VALUES: Mapping[str, tuple[str, str]] = {
    "reward/mean": ("reward_mean", "Mean reward of the newest step's responses."),
    "eval/accuracy": ("eval_accuracy_ratio", "Held-out accuracy, 0 to 1."),
    "eval/reward": ("eval_reward_mean", "Mean reward of responses to held-out prompts."),
    "eval/loss": ("eval_loss", "Held-out loss, in nats per token."),
    "loss/policy": ("policy_loss", "Policy loss of the newest step."),
    "loss/sft": ("sft_loss", "Cross-entropy of the newest step, in nats per token."),
    "loss/pairs": ("pairs_loss", "Loss on preference pairs of the newest step."),
    "kl/reference": ("reference_kl", "Divergence from the reference model."),
    "policy/entropy": ("policy_entropy", "Entropy of the policy, in nats per token."),
    "policy/grad_norm": ("policy_gradient_norm", "Norm of the policy's gradient before clipping."),
    "policy/clip_fraction": ("policy_clip_ratio", "Fraction of tokens whose ratio was clipped, 0 to 1."),
    "response/length_mean": ("response_tokens_mean", "Mean length of responses, in tokens."),
    "response/truncated_fraction": ("response_truncated_ratio", "Fraction of responses cut at the limit, 0 to 1."),
    "time/step_seconds": ("step_duration_seconds", "Wall time of the newest step."),
    "throughput/rollout_tokens_per_second": ("rollout_tokens_per_second", "Tokens generated a second."),
    "throughput/update_tokens_per_second": ("update_tokens_per_second", "Tokens trained on a second."),
    "throughput/tokens_per_second_per_gpu": ("gpu_tokens_per_second", "Tokens a second and GPU."),
}
_OF_RUN = ("run", "project")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How much whoever asks may see. `projects`: keys of the projects whose runs they see, None for all.

    `is_operator`: also what concerns the console as a whole.
    """

    projects: Collection[int] | None
    is_operator: bool


class Exposition:
    """One answer; prometheus_client's encoders ask it for its families."""

    def __init__(self, scope: Scope, *, now: datetime) -> None:
        self._scope, self._now = scope, now

    def collect(self) -> Iterable[Metric]:
        """Yield every family; what cannot be asked is left out, and its `up` says so."""
        if self._scope.is_operator:
            yield from _own()
            yield from _redis()
            yield from _disk()
            yield from _in_database("pitwall_database_up", "Whether the database answers.", _database_size)
        else:
            yield gauge("pitwall_up", "Whether the console answers.", 1)
        yield from _in_database("pitwall_runs_up", "Whether the rows of runs can be read.", self._of_rows)

    def _of_rows(self) -> Iterator[Metric]:
        yield from _runs(self._scope.projects, now=self._now)
        yield from _queue(self._scope.projects, now=self._now)
        yield from _cluster(cluster_in_use())


def gauge(name: str, text: str, value: float | None = None, labels: Collection[str] = ()) -> GaugeMetricFamily:
    """Return a family of a gauge: with one value, or with labels, for samples to come."""
    return GaugeMetricFamily(name, text, value=value, labels=list(labels) or None)


def _counter(name: str, text: str, value: float | None = None, labels: Collection[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value, labels=list(labels) or None)


def _own() -> Iterator[Metric]:
    """What this web process counts, with its name: another one may answer the next time."""
    process = process_name()
    yield gauge("pitwall_up", "Whether the console answers.", 1)
    for family in OWN.collect():
        family.samples = [s._replace(labels={**s.labels, "process": process}) for s in family.samples]
        yield family


def _in_database(name: str, text: str, families: Callable[[], Iterable[Metric]]) -> Iterator[Metric]:
    is_up = True
    try:
        yield from list(families())
    except DatabaseError:
        is_up = False
    yield gauge(name, text, int(is_up))


def _database_size() -> Iterator[Metric]:
    yield gauge("pitwall_database_size_bytes", "What the database takes on its disk.", database_bytes())


def _disk() -> Iterator[Metric]:
    size, free = disk_facts()
    yield gauge("pitwall_data_disk_size_bytes", "Size of the disk that the data directory is on.", size)
    yield gauge("pitwall_data_disk_free_bytes", "Free room on the disk that the data directory is on.", free)


def _redis() -> Iterator[Metric]:
    try:
        with client(settings.REDIS_URL) as redis_client:
            facts = redis_facts(redis_client, now=time.time())
    except (redis.RedisError, OSError):
        yield gauge("pitwall_redis_up", "Whether Redis answers.", 0)
        return
    yield gauge("pitwall_redis_up", "Whether Redis answers.", 1)
    yield gauge("pitwall_redis_memory_bytes", "Memory that Redis uses.", facts.memory_bytes)
    yield gauge("pitwall_redis_memory_limit_bytes", "Memory that Redis may use; 0: no limit.", facts.memory_limit_bytes)
    yield from _ingest(facts)
    yield gauge("pitwall_tasks_waiting", "Celery tasks that no worker has taken.", facts.tasks_waiting)
    yield gauge("pitwall_tasks_under_way", "Celery tasks that a worker has taken.", facts.tasks_under_way)
    yield gauge("pitwall_tasks_oldest_age_seconds", "Age of the oldest waiting task.", facts.oldest_task_seconds)
    yield from _services(facts)


def _ingest(facts: RedisFacts) -> Iterator[Metric]:
    yield _counter("pitwall_ingest_batches", "Batches of runs' reports stored.", facts.batches)
    yield _counter("pitwall_ingest_bytes", "Bytes of runs' reports stored.", facts.num_bytes)
    yield _counter("pitwall_ingest_frames", "Frames stored and handed to open pages.", facts.frames)
    yield gauge("pitwall_ingest_batches_waiting", "Batches that ingest has not stored yet.", facts.batches_waiting)
    yield gauge("pitwall_ingest_lag_seconds", "Age of the oldest batch not stored yet.", facts.oldest_batch_seconds)
    trouble = "Whether ingest says that it cannot store what comes."
    yield gauge("pitwall_ingest_trouble", trouble, int(facts.is_ingest_in_trouble))


def _services(facts: RedisFacts) -> Iterator[Metric]:
    alive = gauge("pitwall_service_processes", "Processes of a service that are at work.", labels=["service"])
    seen = gauge("pitwall_service_last_seen_timestamp_seconds", "When a service was last at work.", labels=["service"])
    starts = _counter("pitwall_service_starts", "How often a process of a service has started.", labels=["service"])
    for state in facts.services:
        alive.add_metric([state.service], state.num_alive)
        starts.add_metric([state.service], state.num_starts)
        if state.seen_at:
            seen.add_metric([state.service], state.seen_at)
    yield from (alive, seen, starts)


def _queue(projects: Collection[int] | None, *, now: datetime) -> Iterator[Metric]:
    count = gauge("pitwall_runs", "Runs that are not archived, by project and state.", labels=["project", "state"])
    counts = run_counts(projects)
    for project in sorted({project for project, _ in counts}):
        for state in STATES:
            count.add_metric([project, state], counts.get((project, state), 0))
    yield count
    text = "How long the run that came first waits for the cluster."
    oldest = gauge("pitwall_queue_oldest_wait_seconds", text, labels=["project"])
    for project, seconds in sorted(oldest_waits(projects, now=now).items()):
        oldest.add_metric([project], seconds)
    yield oldest


def _cluster(state: ClusterState) -> Iterator[Metric]:
    yield gauge("pitwall_cluster_up", "Whether Ray answers and has a live node.", int(state.is_reachable))
    yield gauge("pitwall_cluster_nodes", "Live nodes of the cluster.", len(state.nodes))
    for kind, total, used in (
        ("gpus", state.gpus_total, state.gpus_used),
        ("cpus", state.cpus_total, state.cpus_used),
    ):
        yield gauge(f"pitwall_cluster_{kind}", f"{kind[:-1].upper()}s of the cluster.", total)
        free = f"{kind[:-1].upper()}s of the cluster that no run holds."
        yield gauge(f"pitwall_cluster_free_{kind}", free, max(0.0, total - used))


def _runs(projects: Collection[int] | None, *, now: datetime) -> Iterator[Metric]:
    shown = shown_runs(projects, names=VALUES, now=now)
    text = "Live, just ended and waiting runs that have no series of their own, because there are too many."
    yield gauge("pitwall_runs_left_out", text, shown.num_left_out)
    info = InfoMetricFamily("pitwall_run", "What a run is called and does.", labels=_OF_RUN)
    state = gauge("pitwall_run_state", "1 for the state that the run is in.", labels=[*_OF_RUN, "state"])
    for run in shown.runs:
        more = {"name": run.name, "trainer": run.trainer, "algorithm": run.algorithm}
        info.add_metric([run.id, run.project], more)
        state.add_metric([run.id, run.project, run.state], 1)
    yield from (info, state)
    yield from (_each(shown.runs, name, text, read) for name, text, read in _NUMBERS)
    for metric, (name, text) in VALUES.items():
        yield _each(shown.runs, name, text, lambda run, metric=metric: run.values.get(metric))  # type: ignore[misc]


def _each(
    runs: Iterable[RunFacts], name: str, text: str, read: Callable[[RunFacts], float | None]
) -> GaugeMetricFamily:
    family = gauge(f"pitwall_run_{name}", text, labels=_OF_RUN)
    for run in runs:
        value = read(run)
        if value is not None:
            family.add_metric([run.id, run.project], value)
    return family


def _timestamp(at: datetime | None) -> float | None:
    return at.timestamp() if at else None


_NUMBERS: tuple[tuple[str, str, Callable[[RunFacts], float | None]], ...] = (
    ("attempt", "Number of the run's latest attempt.", lambda run: run.attempt),
    ("step", "Steps completed.", lambda run: run.step),
    ("steps", "Steps that the run is to do; 0: not known.", lambda run: run.num_steps),
    ("started_timestamp_seconds", "When the run began to run.", lambda run: _timestamp(run.started_at)),
    ("ended_timestamp_seconds", "When the run ended.", lambda run: _timestamp(run.ended_at)),
    (
        "last_contact_timestamp_seconds",
        "When the runner of a live run last reported.",
        lambda run: _timestamp(run.last_contact_at),
    ),
)
