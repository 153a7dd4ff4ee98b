"""What the API answers, as far as the command line reads it; what the planner answers is in `planner_json.py`.

The schemas themselves are in `console.api`: importing them would triple the time in which a command starts.
`tests/console/api/test_client_shapes.py` holds the two together.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

from jobs.catalog.value import Value

Verdict = Literal["fits", "tight", "no"]


class RetryJson(TypedDict):
    """What the policy does about a failure: the next attempt starts not before `at`."""

    at: str | None


class CauseJson(TypedDict, total=False):
    """Why a run failed; {} if it did not."""

    text: str
    log_line: str


class RunResultJson(TypedDict):
    """What a run came to."""

    id: str
    name: str
    state: str
    step: int
    num_steps: int
    elapsed_seconds: float | None
    cause: CauseJson


class RunJson(RunResultJson):
    """A run at a glance."""

    activity: str
    wait_reason: str
    queue_position: int | None
    retry: RetryJson | None


class ListedRunJson(RunJson):
    """A run of a list."""

    tags: list[str]


class RunRowJson(TypedDict):
    """A line of a list of runs."""

    run: ListedRunJson


class RunListJson(TypedDict):
    """One page of runs; where not `is_counted`, there are more than `total`."""

    runs: list[RunRowJson]
    total: int
    is_counted: bool


class RefusedRunJson(TypedDict):
    """A run that was not changed, and why."""

    id: str
    name: str
    message: str


class RunsChangedJson(TypedDict):
    """Ids of the runs that were changed, and those that refused."""

    done: list[str]
    refused: list[RefusedRunJson]


class LaunchedJson(TypedDict):
    """The run that a launch made, or had made before."""

    run: RunJson
    url: str
    note: str


class LiveKnobJson(TypedDict):
    """A knob that can change while the run trains."""

    id: str
    value: float | int | str | bool | None
    pending: float | int | str | bool | None
    allowed: str


class LiveSettingsJson(TypedDict):
    """What can change of a run now, or the problem why nothing can."""

    knobs: list[LiveKnobJson]
    problem: str


class KnobsChangedJson(TypedDict):
    """What was asked of a running run."""

    is_changed: bool
    settings: LiveSettingsJson


class DeletionJson(TypedDict):
    """What became of a run that was to be deleted."""

    id: str
    name: str
    bytes_here: int
    bytes_cluster: int
    outcome: str
    message: str
    purge_at: str | None


class TrashEntryJson(TypedDict):
    """One thing in the trash."""

    id: int
    kind: str
    run_id: str
    run_name: str
    bytes_here: int
    bytes_cluster: int
    state: str
    author: str
    is_by_rule: bool
    purge_at: str
    problem: str


class VariableJson(TypedDict):
    """A variable of a project; of a secret no value."""

    name: str
    is_secret: bool
    value: str | None


class EnvironmentJson(TypedDict):
    """What runs of a project are given."""

    variables: list[VariableJson]


class RetentionRuleJson(TypedDict):
    """What of a kind stays."""

    days: int | None
    keep_last: int | None
    keep_best: int | None


class RetentionJson(TypedDict):
    """What ended runs of a project keep, by kind, and for how many days its trash can be undone."""

    rules: dict[str, RetentionRuleJson]
    trash_days: int | None
    console_trash_days: int


class GoingJson(TypedDict):
    """What of a run would go."""

    kind: str
    run_id: str
    run_name: str
    num_things: int
    bytes_here: int
    bytes_cluster: int


class RetentionPreviewJson(TypedDict):
    """What rules would let go now; `total` counts all of it."""

    going: list[GoingJson]
    total: int
    bytes_here: int
    bytes_cluster: int


class ResumedJson(TypedDict):
    """A run with its new attempt."""

    attempt: int
    run: RunJson


class CheckpointJson(TypedDict):
    """A checkpoint; `problem` says why it is believed lost, `is_after_divergence` that a guard found it too late."""

    attempt: int
    step: int
    is_visible: bool
    is_after_divergence: bool
    problem: str


class MergeJson(TypedDict):
    """A model that is made of a checkpoint; `problem` says why there is none."""

    id: int
    attempt: int
    step: int
    state: str
    problem: str


class MetricJson(TypedDict):
    """A series that there is."""

    kind: str
    name: str
    role: str


class PointsJson(TypedDict):
    """Values of a metric, by step; those that are no finite number have a name."""

    name: str
    y: Sequence[float | str | None]


class SeriesJson(PointsJson):
    """The same with its steps, of one role."""

    role: str
    x: list[int | str]


class VariedKnobJson(TypedDict):
    """A knob that a sweep varies."""

    id: str


class StudyJson(TypedDict):
    """A sweep at a glance."""

    id: str
    state: str
    num_runs: int
    counts: dict[str, int]
    knobs: list[VariedKnobJson]
    metric: str
    best_run: str | None


class StudyRowJson(TypedDict):
    """A run of a sweep, with the last and the best value of the metric."""

    header: RunJson
    values: dict[str, Value]
    last: float | None
    best: float | None


class StudyTableJson(TypedDict):
    """A sweep and its runs."""

    study: StudyJson
    runs: list[StudyRowJson]


class StudyLaunchedJson(TypedDict):
    """The sweep that a launch made, or had made before."""

    study: StudyJson
    url: str


class CaptureFileJson(TypedDict):
    """A file of a capture; `tool_version` is what made it."""

    name: str
    size: int
    tool_version: str


class CaptureJson(TypedDict):
    """A capture and its state."""

    id: str
    what: str
    tool: str
    num_steps: int
    seconds: float
    state: str
    problem: str
    files: list[CaptureFileJson]


class LayerJson(TypedDict):
    """One file of a trace."""

    id: int
    file_name: str
    state: str
    problem: str
    events: int | None


class TraceJson(TypedDict):
    """A trace and its files."""

    id: str
    name: str
    url: str
    layers: list[LayerJson]


class UseJson(TypedDict):
    """How much of one quota is used."""

    name: Literal["storage_bytes", "upload_bytes", "uploads", "live_runs", "gpu_hours", "imports"]
    used: float
    most: float | None
    is_near: bool


class QuotaJson(TypedDict):
    """The quotas of a project or a person."""

    of: str
    uses: list[UseJson]
    stops_runs: bool
