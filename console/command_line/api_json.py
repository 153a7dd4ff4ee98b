"""What the API answers, as far as the command line reads it.

The schemas themselves are in `console.api`: importing them would triple the time in which a command starts.
`tests/console/api/test_client_shapes.py` holds the two together.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

from jobs.catalog.value import Value

Verdict = Literal["fits", "tight", "no"]


class IntervalJson(TypedDict):
    """A quantity, and how sure it is."""

    low: float
    middle: float
    high: float


class PhaseJson(TypedDict):
    """The peak of a phase. [bytes]"""

    phase: str
    total: int
    terms: dict[str, int]


class PoolJson(TypedDict):
    """Devices that hold the same roles; `limit` in bytes."""

    name: str
    num_devices: int
    limit: int
    share: float
    phases: list[PhaseJson]


class FleetJson(TypedDict):
    """The hardware of a plan."""

    label: str
    num_devices: int


class StepTimeJson(TypedDict):
    """Seconds of a step, by phase and as a whole."""

    phases: dict[str, IntervalJson]
    step: IntervalJson
    tokens_per_second: IntervalJson


class CostJson(TypedDict):
    """What the whole run takes, as far as it is known."""

    seconds: IntervalJson | None
    device_hours: IntervalJson | None
    money: IntervalJson | None
    currency: str


class PlanJson(TypedDict):
    """The plan of a spec; sizes in bytes."""

    verdict: Verdict
    pool: str
    phase: str
    term: str
    band: float
    fleet: FleetJson
    pools: list[PoolJson]
    time: StepTimeJson
    cost: CostJson
    host_bytes: int
    checkpoint_bytes: int
    unpriced: list[str]
    notes: list[str]


class ChangeJson(TypedDict):
    """A change on offer, and what it leads to: bytes and seconds of a step."""

    title: str
    changes: dict[str, Value]
    needed: int
    seconds: float


class LargestTermJson(TypedDict):
    """One of the largest parts of a plan, and the change that lowers it most."""

    of: Literal["memory", "time"]
    key: str
    now: float
    after: float
    change: ChangeJson | None


class SensitivityJson(TypedDict):
    """A constant, and the answer over its range."""

    name: str
    low: float
    high: float
    needed: IntervalJson
    seconds: IntervalJson


class AdviceJson(TypedDict):
    """What would make a run fit, or faster."""

    fit: list[ChangeJson]
    faster: list[ChangeJson]
    together: ChangeJson | None
    largest_terms: list[LargestTermJson]
    constants: list[SensitivityJson]


class LayoutJson(TypedDict):
    """A layout that fits; `room` in bytes."""

    changes: dict[str, Value]
    num_devices: int
    seconds: float
    room: int


class RejectedJson(TypedDict):
    """How many layouts were rejected for one reason."""

    label: str
    count: int


class LayoutsJson(TypedDict):
    """The best layouts first."""

    goal: str
    considered: int
    layouts: list[LayoutJson]
    rejected: list[RejectedJson]
    skipped: int


class NeedJson(TypedDict):
    """The fewest devices in one way to train, and what that takes."""

    on_host: str
    label: str
    devices: int | None
    verdict: Verdict | None
    step: IntervalJson | None


class PublishedJson(TypedDict):
    """A published configuration, and what it says to the answer."""

    model: str
    device: str
    devices: int
    bearing: str


class HardwareJson(TypedDict):
    """Whether a model trains on one hardware."""

    accelerator: str
    answer: Literal["yes", "possible", "no", "unknown"]
    says: str
    more: list[str]
    needs: list[NeedJson]
    step: IntervalJson | None
    notes: list[str]


class CanOptionJson(HardwareJson):
    """The same of a language model."""

    host_bytes: int | None
    disk_bytes: int | None
    devices: int | None
    phase: str
    band: float | None
    terms: dict[str, int]
    pools: list[PoolJson]
    cost_per_step: IntervalJson | None
    constants: list[SensitivityJson]
    published: list[PublishedJson]


class CanItRunJson(TypedDict):
    """Whether a language model trains, and where."""

    model: str
    parameters: int
    is_exact: bool
    rests_on: list[str]
    method: str
    currency: str
    note: str
    options: list[CanOptionJson]


class DiffusionOptionJson(HardwareJson):
    """The same of a diffusion transformer."""

    pool: PoolJson | None


class DiffusionJson(TypedDict):
    """Whether a diffusion transformer trains, and where."""

    model: str
    parameters: int
    latent_tokens: int
    text_tokens: int
    options: list[DiffusionOptionJson]


class ProposalJson(TypedDict):
    """What runs say of one constant."""

    constant: str
    present: float
    evidence: str
    proposed: float | None
    before: float | None
    after: float | None
    runs: list[str]
    num_settings: int
    far: list[str]
    refusal: str


class KindJson(TypedDict):
    """The runs on one kind of device."""

    accelerator: str
    num_runs: int
    before: float | None
    after: float | None
    taken_on: str
    proposals: list[ProposalJson]


class LeftOutJson(TypedDict):
    """Runs that say nothing, and why."""

    why: str
    num_runs: int


class ChangedConstantJson(TypedDict):
    """A constant that a run changed."""

    was: float | None
    value: float


class JoiningJson(TypedDict):
    """What a finished run did to the calibration by itself."""

    run: str
    at: str
    accelerator: str
    num_settings: int
    constants: dict[str, ChangedConstantJson]
    before: float | None
    after: float | None
    why_not: str


class CalibrationJson(TypedDict):
    """What finished runs say of the planner."""

    kinds: list[KindJson]
    left_out: list[LeftOutJson]
    joins: bool
    joined: list[JoiningJson]


class PlannedRowJson(TypedDict):
    """One quantity of a run, planned and measured."""

    quantity: Literal["seconds", "bytes"]
    phase: str
    role: str
    predicted: IntervalJson | None
    measured: float | None


class RunPlanJson(TypedDict):
    """A run's plan beside what it measured."""

    rows: list[PlannedRowJson]
    joining: JoiningJson | None


class PostMortemJson(TypedDict):
    """What of memory a run died, and the smallest change that fits."""

    role: str
    phase: str
    term: str
    changes: dict[str, bool | int | float | str | None]
    change: str
    says: list[str]


class BandJson(TypedDict):
    """Where a metric usually is; both ends null for no band."""

    metric: str
    low: float | None
    high: float | None
    source: str
    is_own: bool


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
