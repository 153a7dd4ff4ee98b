"""RunSpec: everything that makes a run, as frozen and versioned models with JSON both ways.

The models say which fields there are, what each may hold and what it is when left out. Form, API and OpenAPI are made
from them. `jobs.catalog.spec.parse` is the one validator. The same spec launched twice is the same run.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from jobs.catalog.algorithm import algorithms
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.role import ROLES
from jobs.catalog.spec.data_parts import check_eval_sets, check_mixture
from jobs.catalog.spec.environment import check_secret_names, check_variables
from jobs.catalog.spec.placement import placement_of
from jobs.catalog.spec.template_variables import check_template_variables
from jobs.catalog.trainer import BUILT_IN, trainers
from jobs.catalog.value import Value, is_storable
from profiling.config import MAX_FIRST_STEP, MAX_STEPS, Marks, NsysReady, Tool, What

SPEC_VERSION: Literal[1] = 1
MAX_NAME_CHARS = 120
MAX_OVERRIDDEN = 200
MAX_RULE_CHARS = 100
MAX_REWARD_PARTS = 8

Origin = Literal["default", "recipe", "you", "tuner"]


class CatalogName:
    """Marks a text as one of the names that a table of the catalog has."""

    def __init__(self, table: Callable[[], Iterable[str]]) -> None:
        self.names = tuple(table())

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Accept these names."""
        return core_schema.literal_schema(list(self.names))


def _check_storable(text: str) -> str:
    if not is_storable(text):
        raise PydanticCustomError("not_storable", "a character that cannot be stored")
    return text


def _check_version(raw: object) -> object:
    if raw != SPEC_VERSION or isinstance(raw, bool):
        raise PydanticCustomError("unknown_version", "not a known version")
    return SPEC_VERSION


def _check_name(raw: object) -> str:
    name = raw.strip() if isinstance(raw, str) else ""
    is_line = len(name) <= MAX_NAME_CHARS and all(ord(c) >= 32 for c in name) and is_storable(name)
    if not isinstance(raw, str) or not is_line:
        raise PydanticCustomError("not_a_name", "not a name")
    return name


def _check_rule_ids(raw: object) -> tuple[str, ...]:
    if not isinstance(raw, (list, tuple)) or len(raw) > MAX_OVERRIDDEN or not all(map(_is_rule_id, raw)):
        raise PydanticCustomError("not_rule_ids", "not a list of rules' ids")
    return tuple(dict.fromkeys(raw))


def _is_rule_id(raw: object) -> bool:
    return isinstance(raw, str) and is_storable(raw) and len(raw) <= MAX_RULE_CHARS


def _check_more(raw: object) -> object:
    if not isinstance(raw, (list, tuple)) or len(raw) >= MAX_REWARD_PARTS:
        raise PydanticCustomError("not_parts", "not a list of parts")
    return tuple(raw)


def _check_finite(value: float) -> float:
    if not math.isfinite(value):
        raise PydanticCustomError("not_finite", "not a finite number")
    return value


def _as_integer(raw: object) -> object:
    """Return 2 for 2.0, as JSON of other languages has it."""
    return int(raw) if isinstance(raw, float) and raw.is_integer() else raw


AlgorithmId = Annotated[str, CatalogName(algorithms)]
TrainerName = Annotated[str, CatalogName(trainers)]
Text = Annotated[str, AfterValidator(_check_storable)]
Whole = BeforeValidator(_as_integer)
Finite = AfterValidator(_check_finite)
EvalSets = Annotated[Mapping[str, Any], BeforeValidator(check_eval_sets)]
Mixture = Annotated[Mapping[str, Any], BeforeValidator(check_mixture)]
Variables = Annotated[Mapping[str, str], BeforeValidator(check_variables)]
SecretNames = Annotated[tuple[str, ...], BeforeValidator(check_secret_names)]
TemplateVariables = Annotated[Mapping[str, Any], BeforeValidator(check_template_variables)]


class SpecPart(BaseModel):
    """What all parts of a spec share: frozen, no field but the known ones, and no text where a number belongs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Trainer(SpecPart):
    """Which trainer runs the spec, in which version; `native` is the built-in one, whose version is ""."""

    name: TrainerName = BUILT_IN
    version: Text = ""


class ModelSource(SpecPart):
    """Where the starting weights come from: a bundled name, a folder on the cluster, or a hub id (with a revision)."""

    kind: Literal["bundled", "path", "hub"] = "bundled"
    id: Text = "tiny-word-problems"
    revision: Text = ""


class DataSource(SpecPart):
    """Where samples come from and which columns hold them.

    `id` is a bundled name, a JSONL or Parquet path on the cluster, `upload:<sha256>` of a file given to the console, or
    a hub id. GRPO reads `prompt_column` and `answer_column` (handed to the reward); SFT reads `prompt_column` and
    `response_column`, or `messages_column` alone; DPO and reward models read `chosen_column` and `rejected_column`.
    KTO reads `response_column` and `label_column`, or without the latter splits such pairs.
    `eval_share` of the rows is held out where the source has no split of its own; `eval_id` names held-out data that
    stands elsewhere, a path or hub id, for trainers that want it so. `eval_sets` are held-out sets besides, by name:
    where each is (`kind`, `id`, `split`), its columns where they are others than the data's, its own `every_steps`,
    `num_prompts`, `samples_per_prompt` and `temperature` (jobs/catalog/spec/data_parts.py). `mixture` are training data
    besides, by name, of which examples come in proportion to their `weight`, as do those of this source by its own.
    """

    kind: Literal["bundled", "path", "upload", "hub"] = "bundled"
    id: Text = "word-problems"
    split: Text = "train"
    eval_split: Text = ""
    eval_share: Annotated[float, Field(ge=0.0, le=0.5)] = 0.1
    prompt_column: Text = "prompt"
    answer_column: Text = "answer"
    response_column: Text = "response"
    messages_column: Text = ""
    chosen_column: Text = "chosen"
    rejected_column: Text = "rejected"
    label_column: Text = ""
    tools_column: Text = "tools"
    system_prompt: Text = ""
    chat_template_kwargs: TemplateVariables = {}
    eval_id: Text = ""
    eval_sets: EvalSets = {}
    weight: Annotated[float, Field(ge=0.000001, le=1e6)] = 1.0
    mixture: Mixture = {}


class RewardPart(SpecPart):
    """One way in which a completion is scored. `custom` carries its own Python source, so that the spec stays complete.

    `code` runs what a response programs with the tests in the answer column, in a box. A custom source defines
    `reward(prompt: str, completion: str, answer: str) -> float`. A `url` is a reward server, a `judge` a chat model
    behind an address like OpenAI's: `location` is the address, `token_env` names the environment variable of the
    cluster that holds its bearer token. The `source` of a judge is its own prompt, in place of the knob's. `model` is a
    reward model, a folder on the cluster or a hub id in `location`. Other trainers may also score by a `file`, a Python
    path on the cluster in the trainer's own form.

    What the part gives counts `weight` times; `name` is what charts call it, the kind where it is "".
    """

    kind: Literal["math", "exact_match", "format", "code", "custom", "url", "judge", "file", "model"] = "math"
    source: Text = ""
    file_name: Text = ""
    location: Text = ""
    token_env: Text = ""
    weight: Annotated[float, Field(ge=-1000.0, le=1000.0), Finite] = 1.0
    name: Text = ""


class RewardSource(RewardPart):
    """How completions are scored: by its own fields and, where rewards are mixed, by those of `more` besides.

    A completion earns the sum of what each part gives, times the part's weight.
    """

    more: Annotated[tuple[RewardPart, ...], BeforeValidator(_check_more)] = ()

    @property
    def parts(self) -> tuple[RewardPart, ...]:
        """Every part: the section's own fields first."""
        return (self, *self.more)


class Hardware(SpecPart):
    """What the run asks of the cluster. On CPU a worker takes `cpus_per_worker` logical CPUs; on CUDA also one GPU.

    Layout, ranks, engines and tensor parallelism are the built-in trainer's; of others the knobs of the group placement
    say it. `layout`: every role on devices of its own (split); the reference with a copy in each of the policy's ranks,
    which score their own part of a batch (shared); and completions are drawn there, too (colocated), by the ranks
    themselves or by vLLM engines on their devices, as the knob rollout.engine says.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    layout: Literal["split", "shared", "colocated"] = "colocated"
    policy_ranks: Annotated[int, Field(ge=1, le=4096), Whole] = 2
    rollout_engines: Annotated[int, Field(ge=1, le=1024), Whole] = 1
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64), Whole] = 1
    cpus_per_worker: Annotated[int, Field(ge=1, le=256), Whole] = 1


class ProfileConfig(SpecPart):
    """A capture asked for at launch, and what marks do besides.

    `what` is to be seen of steps `first_step` to `first_step + num_steps - 1` (from 1) on `roles` and `ranks`, lists
    separated by commas, "" for all; "none" asks for no capture. `tool` "none" lets the tool be selected once the
    workers are known; who names one gets that one. `marks` is the backend of detail marks, `auto` the best that the
    node offers (profiling.profilers). `nsys_ready` starts workers so that nsys can attach to them at any step; `auto`
    does so on nodes that have nsys.
    """

    what: What = "none"
    tool: Tool = "none"
    first_step: Annotated[int, Field(ge=1, le=MAX_FIRST_STEP), Whole] = 2
    num_steps: Annotated[int, Field(ge=1, le=MAX_STEPS), Whole] = 2
    roles: Text = ""
    ranks: Text = ""
    marks: Marks = "auto"
    nsys_ready: NsysReady = "auto"


class RunPolicy(SpecPart):
    """What the console does on its own: how often it restarts a run from its last checkpoint, and for which causes.

    `cluster`: a node, Ray or a process was lost; `any`: also when the trainer failed after it got further than before.
    A stop by people is never undone. Whoever resumes the run by hand gives it all its retries anew.
    """

    retries: Annotated[int, Field(ge=0, le=10), Whole] = 0
    retry_on: Literal["never", "cluster", "any"] = "never"


class RunEnvironment(SpecPart):
    """The environment variables of the trainer and of all that it starts, besides those of the project.

    `variables` are shown with their values. `secrets` are names alone: a value is given with the launch or kept by the
    project, encrypted, and is in no spec (jobs/catalog/spec/environment.py; jobs/runs/environment.py).
    """

    variables: Variables = {}
    secrets: SecretNames = ()


class KnobValue(SpecPart):
    """A knob's value and who chose it."""

    value: Value
    origin: Origin = "default"


class RunSpec(SpecPart):
    """One run, complete. `knobs` holds every knob that applies to the algorithm and trainer, by id.

    `overridden` names the rules whose findings of this spec a person has read and put aside.
    """

    version: Annotated[Literal[1], BeforeValidator(_check_version)] = SPEC_VERSION
    name: Annotated[str, BeforeValidator(_check_name)] = ""
    algorithm: AlgorithmId = "grpo"
    trainer: Trainer = Field(default_factory=Trainer)
    model: ModelSource = Field(default_factory=ModelSource)
    data: DataSource = Field(default_factory=DataSource)
    reward: RewardSource = Field(default_factory=RewardSource)
    hardware: Hardware = Field(default_factory=Hardware)
    profile: ProfileConfig = Field(default_factory=ProfileConfig)
    policy: RunPolicy = Field(default_factory=RunPolicy)
    environment: RunEnvironment = Field(default_factory=RunEnvironment)
    knobs: Mapping[str, KnobValue] = Field(default_factory=dict)
    overridden: Annotated[tuple[str, ...], BeforeValidator(_check_rule_ids)] = ()

    def knob(self, knob_id: str) -> Any:
        """Return the value of a knob; KeyError if it does not apply to this run."""
        return self.knobs[knob_id].value

    def int_knob(self, knob_id: str) -> int:
        """Return an integer knob."""
        return int(self.knob(knob_id))

    def float_knob(self, knob_id: str) -> float:
        """Return a number knob."""
        return float(self.knob(knob_id))

    @property
    def is_native(self) -> bool:
        """True if the built-in trainer runs it."""
        return self.trainer.name == BUILT_IN

    def needs(self, role: str) -> bool:
        """Return True if the run has the role. Raises: KeyError for a role that the table does not have."""
        return ROLES[role].is_needed(self)

    @property
    def num_workers(self) -> int:
        """Devices of all its pools, each of which may hold several roles."""
        return sum(placement_of(self).pools(self).values())

    @property
    def workers(self) -> dict[str, int]:
        """Role -> how many ranks of it the run has; a rollout engine is one rank, however many workers it is spread."""
        return placement_of(self).workers(self)

    @property
    def num_steps(self) -> int:
        """Optimizer-visible steps: one rollout and its update in RL, else one batch; 0 where only the data decides."""
        chosen = self.knobs.get("train.num_steps")
        return int(chosen.value or 0) if chosen is not None else 0

    @property
    def reward_model(self) -> str:
        """Where the reward model is that scores completions, "" without one."""
        return next((part.location for part in self.reward.parts if part.kind == "model"), "")

    def values(self) -> dict[str, Value]:
        """Return knob id -> value, and under reward.model_path the reward model that the section reward names."""
        by_id = {knob_id: chosen.value for knob_id, chosen in self.knobs.items()}
        if any(part.kind == "model" for part in self.reward.parts):
            by_id["reward.model_path"] = self.reward_model
        return by_id


def to_json(spec: RunSpec) -> dict[str, Any]:
    """Return the spec as plain JSON values; `parse_spec` of it gives the same spec."""
    whole = spec.model_dump() | {"overridden": list(spec.overridden)}
    lists = {
        "reward": whole["reward"] | {"more": list(whole["reward"]["more"])},
        "environment": whole["environment"] | {"secrets": list(whole["environment"]["secrets"])},
    }
    return whole | lists


def to_text(spec: RunSpec) -> str:
    """Return the spec as readable JSON with sorted keys."""
    return json.dumps(to_json(spec), indent=2, sort_keys=True, ensure_ascii=False)


def differing(spec: RunSpec) -> dict[str, KnobValue]:
    """Return the knobs whose value is not the catalogue's default for this algorithm and trainer."""
    return {k: v for k, v in spec.knobs.items() if v.value != default_of(spec, knobs()[k])}


def default_of(spec: RunSpec, knob: Knob) -> Value:
    """Return what the knob would be in this run if nobody had chosen it."""
    return knob.default_for(spec.algorithm, spec.trainer.name, spec.trainer.version, spec.hardware.device)


def choices_of(field: FieldInfo) -> tuple[str, ...]:
    """Return the texts that a field chooses from; () for one that does not."""
    if get_origin(field.annotation) is Literal:
        return get_args(field.annotation)
    return next((mark.names for mark in field.metadata if isinstance(mark, CatalogName)), ())


def _ranges() -> Iterator[tuple[str, tuple[float, float]]]:
    for section, cls in SECTIONS.items():
        for name, field in cls.model_fields.items():
            low = [mark.ge for mark in field.metadata if hasattr(mark, "ge")]
            high = [mark.le for mark in field.metadata if hasattr(mark, "le")]
            if low and high:
                yield f"{section}.{name}", (low[0], high[0])


SECTIONS: Mapping[str, type[SpecPart]] = {
    "trainer": Trainer,
    "model": ModelSource,
    "data": DataSource,
    "reward": RewardSource,
    "hardware": Hardware,
    "profile": ProfileConfig,
    "policy": RunPolicy,
    "environment": RunEnvironment,
}
RANGES: Mapping[str, tuple[float, float]] = dict(_ranges())
"""Least and most of each number outside the knobs, by dotted field."""
