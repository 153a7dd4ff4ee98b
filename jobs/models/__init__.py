"""Every row: fields, constraints and simple properties only, a module for each family of tables."""

from jobs.models.accounts import (
    ApiToken,
    AuditEvent,
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
from jobs.models.projects import (
    Membership,
    Project,
    Upload,
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
from jobs.models.telemetry import (
    Chunk,
    Frame,
    LogChunk,
    Metric,
    Sample,
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
    "Capture",
    "Chunk",
    "Command",
    "Frame",
    "Layer",
    "LogChunk",
    "Membership",
    "Metric",
    "Project",
    "Run",
    "RunEvent",
    "RunWatch",
    "Sample",
    "SigninLink",
    "Study",
    "Trace",
    "Upload",
    "new_capture_id",
    "new_run_id",
    "new_study_id",
    "new_trace_id",
]
