"""What the API answers about plans, as far as the command line reads it: see `api_json.py`."""

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
    """Where a metric usually is; both ends null for no band. `algorithm`: whose runs it is for, "" for all."""

    metric: str
    algorithm: str
    low: float | None
    high: float | None
    source: str
    is_own: bool
