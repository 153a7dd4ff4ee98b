"""Store batches of one attempt in one transaction: frames, series names, logs, samples, artifacts, history, header.

Exactly once: only batch `durable_batch` + 1 is taken, and the number moves in the same transaction as the data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import orjson
from django.db import transaction

from jobs.captures import captures
from jobs.catalog.metric import current_name
from jobs.ingest.knob_changes import read_change, who_asked
from jobs.models import ENDED, Artifact, Attempt, Frame, LogChunk, Metric, Run, RunEvent, Sample
from jobs.runs import lifecycle
from jobs.telemetry.attempt_spec import CHANGED
from jobs.telemetry.columns import SeriesKey
from jobs.telemetry.frames import LogBlock, encode_frame
from jobs.telemetry.run_progress import RunProgress
from jobs.telemetry.samples import prompt_key
from profiling.events import ArtifactEvent, Event, Number

MAX_SERIES = 20_000  # names a run may have; the design is for 5,000
LOG_CHUNK_LINES = 500
LOG_CHUNK_CHARS = 64 * 1024
SHOWN_STATES = {"ready": "The trainer is ready", "done": "The trainer is done", "failed": "The trainer failed"}

Events = list[Event]
LogKey = tuple[str, int, str]  # role, rank, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A batch as it lies on the ingest stream; `events` is a JSON list."""

    id: bytes
    run_id: str
    attempt: int
    batch: int
    events: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResult:
    """What became of deliveries: the frames written, and whether the next batch in line has not come (`has_gap`)."""

    frames: tuple[tuple[int, bytes], ...] = ()  # seq, JSON text
    has_gap: bool = False


@dataclass(slots=True, kw_only=True)
class AttemptCache:
    """What need not be asked again while an attempt's batches are stored here. Thrown away if a transaction fails."""

    through: int = -1  # the durable batch that this is the state of; another one there: somebody else stored, ask again
    series: set[SeriesKey] = field(default_factory=set)
    next_line: dict[LogKey, int] = field(default_factory=dict)
    next_phase: dict[str, str] = field(default_factory=dict)  # of a step, as the steps before went
    previous_phase: str = ""
    is_full: bool = False

    def refresh(self, attempt: Attempt) -> None:
        """Ask the database anew unless nothing happened since."""
        if self.through == attempt.durable_batch:
            return
        series = Metric.objects.filter(run_id=attempt.run_id)
        self.series = set(series.values_list("kind", "name", "role", "rank"))
        self.next_line = {}
        chunks = LogChunk.objects.filter(run_id=attempt.run_id, attempt=attempt.number).order_by("first_line")
        for role, rank, stream, first, num in chunks.values_list("role", "rank", "stream", "first_line", "num_lines"):
            self.next_line[role, rank, stream] = first + num


def store(deliveries: Sequence[Delivery], *, memory: AttemptCache, now: datetime) -> StoreResult:
    """Store what is next in line of the deliveries, all of one attempt and in the order of the stream.

    What was stored before, or comes from an attempt that is not the run's latest, is passed over. The caller throws
    `memory` away if this raises. Raises: django.db.Error, and what a batch causes that the endpoint should have
    refused.
    """
    run_id, number = deliveries[0].run_id, deliveries[0].attempt
    with transaction.atomic():
        attempt = Attempt.objects.select_for_update().filter(run_id=run_id, number=number).first()
        if attempt is None:
            return StoreResult()
        run = Run.objects.select_for_update().defer("spec", "note").get(pk=run_id)
        if run.latest_attempt != number:
            return StoreResult()
        taken: list[Delivery] = []
        has_gap = False
        for delivery in deliveries:
            following = attempt.durable_batch + len(taken) + 1
            if delivery.batch == following:
                taken.append(delivery)
            has_gap = has_gap or delivery.batch > following
        if not taken:
            return StoreResult(has_gap=has_gap)
        memory.refresh(attempt)
        batches: list[Events] = [_with_current_names(orjson.loads(delivery.events)) for delivery in taken]
        events = [event for batch in batches for event in batch]
        _name_series(run, number, batches, memory, now)
        frames = []
        log_chunks: list[LogChunk] = []
        for delivery, batch in zip(taken, batches, strict=True):
            run.seq += 1
            blocks = _log_blocks(batch, memory)
            log_chunks += _log_chunks(run, number, blocks, batch)
            payload = encode_frame(seq=run.seq, attempt=number, events=batch, logs=blocks)
            frames.append(Frame(run=run, seq=run.seq, attempt=number, batch=delivery.batch, at=now, payload=payload))
        Frame.objects.bulk_create(frames)
        LogChunk.objects.bulk_create(log_chunks)
        _store_samples(run, number, events)
        _announce_artifacts(run, number, events)
        capture_events = [event for event in events if event["kind"] == "capture"]
        captures.apply_events(run_id=run_id, attempt=number, events=capture_events, now=now)
        _tell_history(run, number, events)
        Attempt.objects.filter(pk=attempt.pk).update(durable_batch=taken[-1].batch)
        _move_run(run, attempt, events, memory, now)
    memory.through = taken[-1].batch
    return StoreResult(frames=tuple((frame.seq, bytes(frame.payload)) for frame in frames), has_gap=has_gap)


def skip(delivery: Delivery, *, reason: str, now: datetime) -> None:
    """Use up the number of a batch that cannot be stored, and say so in the run's history."""
    with transaction.atomic():
        attempts = Attempt.objects.filter(
            run_id=delivery.run_id, number=delivery.attempt, durable_batch=delivery.batch - 1
        )
        if attempts.update(durable_batch=delivery.batch):
            RunEvent.objects.create(
                run_id=delivery.run_id,
                attempt=delivery.attempt,
                at=now,
                verb="batch_skipped",
                text=f"Batch {delivery.batch} could not be stored and was left out: {reason}"[:500],
                data={"batch": delivery.batch},
            )


def _move_run(run: Run, attempt: Attempt, events: Events, memory: AttemptCache, now: datetime) -> None:
    """Write the header's values, then let the lifecycle decide what the events say about the state."""
    progress = RunProgress(
        step=run.step,
        phase=run.phase,
        activity=run.activity,
        latest_values=run.latest_values,
        next_phase=memory.next_phase,
        previous_phase=memory.previous_phase,
    )
    for event in events:
        progress.see(event)
    memory.previous_phase = progress.previous_phase
    values: dict[str, object] = {"seq": run.seq, "step": progress.step, "latest_values": progress.latest_values}
    if progress.num_steps:
        values["num_steps"] = progress.num_steps
    if run.state not in ENDED:
        values |= {"phase": progress.phase, "activity": progress.activity}
    Run.objects.filter(pk=run.pk).update(**values)
    if progress.step != attempt.step:
        Attempt.objects.filter(pk=attempt.pk).update(step=progress.step)
    if progress.is_training and attempt.state in ("queued", "starting"):
        lifecycle.mark_running(run_id=run.pk, attempt=attempt.number, now=now)
    terminal_event = next((e for e in events if e["kind"] == "state" and e["role"] == "runner"), None)
    if terminal_event is not None:
        cause, cleanup = terminal_event.get("cause", {}), terminal_event.get("meta", {})
        word = terminal_event["state"]
        if not lifecycle.finish(
            run_id=run.pk, attempt=attempt.number, state=word, cause=cause, cleanup=cleanup, now=now
        ):
            lifecycle.record_cleanup(run_id=run.pk, attempt=attempt.number, cleanup=cleanup, now=now)


def _with_current_names(events: Events) -> Events:
    """Return the events, their metrics by present names: a runner of an older version sends former ones."""
    for event in events:
        if event["kind"] == "metric":
            event["values"] = {current_name(name): value for name, value in event["values"].items()}
    return events


def _name_series(run: Run, attempt: int, batches: list[Events], memory: AttemptCache, now: datetime) -> None:
    """Make a Metric row for each new name; past the limit, take the new names out of the events."""
    fresh: dict[SeriesKey, None] = {}
    for event in (event for batch in batches for event in batch):
        values: dict[str, Number] = {}
        if event["kind"] == "span":
            names = [""]
        elif event["kind"] == "metric" or event["kind"] == "system":
            values = event["values"]
            names = list(values)
        else:
            continue
        for name in names:
            key = (event["kind"], name, event["role"], event["rank"])
            if key in memory.series or key in fresh:
                continue
            if len(memory.series) + len(fresh) < MAX_SERIES:
                fresh[key] = None
                continue
            values.pop(name, None)
            if not memory.is_full:
                memory.is_full = True
                text = f"The run has {MAX_SERIES} series; {name!r} and further new ones are not kept."
                RunEvent.objects.create(run=run, attempt=attempt, at=now, verb="series_limit", text=text[:500])
    rows = [Metric(run=run, kind=kind, name=name, role=role, rank=rank) for kind, name, role, rank in fresh]
    Metric.objects.bulk_create(rows, ignore_conflicts=True, batch_size=500)
    memory.series |= fresh.keys()


def _log_blocks(events: Events, memory: AttemptCache) -> list[LogBlock]:
    lines: dict[LogKey, list[str]] = {}
    for event in events:
        if event["kind"] == "log":
            lines.setdefault((event["role"], event["rank"], event["stream"]), []).extend(event["lines"])
    blocks = []
    for (role, rank, stream), texts in lines.items():
        first = memory.next_line.get((role, rank, stream), 0)
        memory.next_line[role, rank, stream] = first + len(texts)
        if texts:
            blocks.append(LogBlock(role=role, rank=rank, stream=stream, first_line=first, lines=texts))
    return blocks


def _log_chunks(run: Run, attempt: int, blocks: list[LogBlock], events: Events) -> list[LogChunk]:
    """Return rows of at most 500 lines and about 64 KiB each."""
    at = {(e["role"], e["rank"], e["stream"]): e["t"] for e in reversed(events) if e["kind"] == "log"}
    chunks = []
    for block in blocks:
        start, size = 0, 0
        for i, line in enumerate([*block.lines, None]):
            is_cut = line is None or i - start >= LOG_CHUNK_LINES or size + len(line) > LOG_CHUNK_CHARS
            if is_cut and i > start:
                part = block.lines[start:i]
                chunks.append(
                    LogChunk(
                        run=run,
                        attempt=attempt,
                        role=block.role,
                        rank=block.rank,
                        stream=block.stream,
                        seq=run.seq,
                        first_line=block.first_line + start,
                        num_lines=len(part),
                        at=_moment(at[block.role, block.rank, block.stream]),
                        text="\n".join(part),
                    )
                )
                start, size = i, 0
            size += len(line or "") + 1
    return chunks


def _store_samples(run: Run, attempt: int, events: Events) -> None:
    rows = [
        Sample(
            run=run,
            attempt=attempt,
            step=e["step"],
            group=e.get("group", 0),
            index=e.get("index", 0),
            is_eval=e.get("is_eval", False),
            prompt=e["prompt"],
            completion=e["completion"],
            expected=e.get("expected", ""),
            reward=_finite(e.get("reward")),
            rewards=e.get("rewards", {}),
            tokens=e.get("tokens", 0),
            prompt_key=prompt_key(e["prompt"]),
            token_logprobs=orjson.dumps(logprobs).decode() if (logprobs := e.get("token_logprobs")) else "",
        )
        for e in events
        if e["kind"] == "sample"
    ]
    Sample.objects.bulk_create(rows, ignore_conflicts=True, batch_size=200)


def _announce_artifacts(run: Run, attempt: int, events: Events) -> None:
    """Remember what the trainer made; size and checksum of what is transferred are the upload's own affair."""
    for event in [e for e in events if e["kind"] == "artifact"]:
        meta = event.get("meta", {})
        capture = captures.capture_of(run_id=run.pk, attempt=attempt, meta=meta)
        about = {"type": event["artifact"], "step": event["step"], "path": event["path"], "meta": meta}
        about["capture_id"] = capture
        artifact, is_new = Artifact.objects.get_or_create(
            run=run, attempt=attempt, name=_arrives_as(event), defaults={**about, "size": event.get("size", 0)}
        )
        if not is_new and artifact.meta.get("pinned") and not meta.keys() & {"removed", "pinned"}:
            about["meta"] = {**meta, "pinned": True}  # a person's, which the trainer does not say again
        if not is_new and not artifact.received:
            Artifact.objects.filter(pk=artifact.pk).update(**about)
        elif not is_new and artifact.capture_id != capture:  # its bytes came first, before there was a word of it
            Artifact.objects.filter(pk=artifact.pk).update(capture_id=capture)


def _arrives_as(event: ArtifactEvent) -> str:
    """Return the name under which the runner hands it over: folders come as a zip, checkpoints do not come.

    A capture's files come one by one and as they are.
    """
    name = event["name"]
    is_as_it_is = event["artifact"] == "checkpoint" or bool(event.get("meta", {}).get("capture"))
    return name if is_as_it_is or name.endswith(".zip") else f"{name}.zip"


def _tell_history(run: Run, attempt: int, events: Events) -> None:
    rows = []
    for event in events:
        actor = None
        if event["kind"] == "note":
            verb, text, data = "note", event["text"], event.get("meta", {})
            if (change := read_change(data)) is not None:
                verb, data, actor = CHANGED, change, who_asked(run.pk, change["command"])
        elif event["kind"] == "state" and event["role"] == "driver" and event["state"] in SHOWN_STATES:
            verb, data = f"trainer_{event['state']}", event.get("cause", {})
            text = event.get("text") or str(data.get("text") or SHOWN_STATES[event["state"]])
        else:
            continue
        step = event["step"] if event["step"] >= 0 else None
        at = _moment(event["t"])
        row = RunEvent(run=run, attempt=attempt, at=at, verb=verb, text=text[:500], step=step, data=data)
        row.actor_id = actor
        rows.append(row)
    RunEvent.objects.bulk_create(rows)


def _moment(t: int) -> datetime:
    """Return Unix ns as a datetime; a clock that is off by more than a datetime holds reads as 1970."""
    try:
        return datetime.fromtimestamp(t / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _finite(value: float | str | None) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value)
