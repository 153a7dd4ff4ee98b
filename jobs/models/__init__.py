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
    Artifact,
    Capture,
    Layer,
    Trace,
    new_capture_id,
    new_trace_id,
)
from jobs.models.dashboards import Dashboard, new_dashboard_id
from jobs.models.environment import Variable
from jobs.models.health import HealthMark
from jobs.models.listing import (
    ARCHIVED,
    LISTED,
    TRASHED,
    RunFact,
    RunKey,
    RunLine,
    SavedView,
)
from jobs.models.projects import (
    Membership,
    Project,
    Upload,
)
from jobs.models.retention import (
    Retention,
    TrashItem,
)
from jobs.models.reviews import SampleReview
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
from jobs.models.short_jobs import UNDER_WAY, Answer, Merge, ShortJob
from jobs.models.storage import (
    DiskSample,
    Quota,
    RunUsage,
)
from jobs.models.telemetry import (
    Chunk,
    Frame,
    LogChunk,
    LogIndex,
    Metric,
    Sample,
    SeriesStatistics,
)

__all__ = [
    "ARCHIVED",
    "ENDED",
    "LISTED",
    "LIVE",
    "STATES",
    "TRASHED",
    "UNDER_WAY",
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
    "Dashboard",
    "DiskSample",
    "Frame",
    "HealthMark",
    "Identity",
    "Layer",
    "LogChunk",
    "LogIndex",
    "Membership",
    "Merge",
    "Metric",
    "Project",
    "Quota",
    "Retention",
    "Run",
    "RunEvent",
    "RunFact",
    "RunKey",
    "RunLine",
    "RunUsage",
    "RunWatch",
    "Sample",
    "SampleReview",
    "SavedView",
    "SeriesStatistics",
    "ShortJob",
    "SigninLink",
    "Study",
    "Trace",
    "TrashItem",
    "Upload",
    "Variable",
    "new_capture_id",
    "new_dashboard_id",
    "new_run_id",
    "new_study_id",
    "new_trace_id",
]
