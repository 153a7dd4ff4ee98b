"""Every row: fields, constraints and simple properties only, a module for each family of tables."""

from jobs.models.accounts import (
    ApiToken,
    AuditEvent,
    AuditSweep,
    Identity,
    SigninLink,
)
from jobs.models.alerts import (
    AlertChannel,
    AlertIncident,
    AlertMessage,
    AlertMute,
    AlertNote,
    AlertRule,
    AlertSubscription,
    RunWatch,
)
from jobs.models.captures import (
    Answer,
    Artifact,
    Capture,
    Layer,
    Trace,
    new_capture_id,
    new_trace_id,
)
from jobs.models.health import HealthMark
from jobs.models.projects import (
    Membership,
    Project,
    Upload,
)
from jobs.models.retention import (
    Retention,
    TrashItem,
)
from jobs.models.runs import (
    ENDED,
    LIVE,
    STATES,
    Attempt,
    Command,
    Run,
    RunEvent,
    Study,
    new_run_id,
    new_study_id,
)
from jobs.models.storage import (
    DiskSample,
    Quota,
    RunUsage,
)
from jobs.models.telemetry import (
    Chunk,
    Frame,
    LogChunk,
    Metric,
    Sample,
    SeriesStatistics,
)

__all__ = [
    "ENDED",
    "LIVE",
    "STATES",
    "AlertChannel",
    "AlertIncident",
    "AlertMessage",
    "AlertMute",
    "AlertNote",
    "AlertRule",
    "AlertSubscription",
    "Answer",
    "ApiToken",
    "Artifact",
    "Attempt",
    "AuditEvent",
    "AuditSweep",
    "Capture",
    "Chunk",
    "Command",
    "DiskSample",
    "Frame",
    "HealthMark",
    "Identity",
    "Layer",
    "LogChunk",
    "Membership",
    "Metric",
    "Project",
    "Quota",
    "Retention",
    "Run",
    "RunEvent",
    "RunUsage",
    "RunWatch",
    "Sample",
    "SeriesStatistics",
    "SigninLink",
    "Study",
    "Trace",
    "TrashItem",
    "Upload",
    "new_capture_id",
    "new_run_id",
    "new_study_id",
    "new_trace_id",
]
