"""The sections of a RunSpec, each field with its default and what it may hold. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value
from profiling.config import MAX_FIRST_STEP, MAX_STEPS, ProfileConfig

Algorithm = Literal[
    "grpo", "sft", "ppo", "dapo", "dr_grpo", "reinforce_pp", "reinforce_pp_baseline", "rloo", "gspo", "dpo", "rm"
]
Origin = Literal["default", "recipe", "you", "tuner"]
ModelKind = Literal["bundled", "path", "hub"]
DataKind = Literal["bundled", "path", "upload", "hub"]
RewardKind = Literal["math", "exact_match", "format", "custom", "file", "url", "model"]
Device = Literal["auto", "cpu", "cuda"]
PolicyOnFailure = Literal["never", "cluster", "any"]
if TYPE_CHECKING:
    TrainerName = str
else:
    TrainerName = Literal[tuple(trainers())]  # the folders of jobs/adapters


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """Which trainer runs the spec, in which version; `native` is the built-in one, whose version is ""."""

    name: TrainerName = "native"
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where the starting weights come from: a bundled name, a folder on the cluster, or a hub id (with a revision)."""

    kind: ModelKind = "bundled"
    id: str = "tiny-word-problems"
    revision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSource:
    """Where samples come from and which columns hold them.

    `id` is a bundled name, a JSONL or Parquet path on the cluster, `upload:<sha256>` of a file given to the console, or
    a hub id. GRPO reads `prompt_column` and `answer_column` (handed to the reward); SFT reads `prompt_column` and
    `response_column`, or `messages_column` alone; DPO and reward models read `chosen_column` and `rejected_column`.
    `eval_share` of the rows is held out where the source has no split of its own; `eval_id` names held-out data that
    stands elsewhere, a path or hub id, for trainers that want it so.
    """

    kind: DataKind = "bundled"
    id: str = "word-problems"
    split: str = "train"
    eval_split: str = ""
    eval_share: float = 0.1
    prompt_column: str = "prompt"
    answer_column: str = "answer"
    response_column: str = "response"
    messages_column: str = ""
    chosen_column: str = "chosen"
    rejected_column: str = "rejected"
    system_prompt: str = ""
    eval_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSource:
    """How a completion is scored. `custom` carries its own Python source, so that the spec stays complete.

    A custom source defines `reward(prompt: str, completion: str, answer: str) -> float`. Other trainers may also score
    by a `file` (a Python path on the cluster, in the trainer's own form), a `url` or a reward `model`: `location`
    names it.
    """

    kind: RewardKind = "math"
    source: str = ""
    file_name: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the run asks of the cluster. On CPU a worker takes `cpus_per_worker` logical CPUs; on CUDA also one GPU.

    Ranks, engines and tensor parallelism are the built-in trainer's; of others the knobs of the group placement say it.
    """

    device: Device = "auto"
    policy_ranks: int = 2
    rollout_engines: int = 1
    tensor_parallel_size: int = 1
    cpus_per_worker: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """What the console does on its own: how often it restarts a run from its last checkpoint, and for which causes.

    `cluster`: a node, Ray or a process was lost; `any`: also when the trainer failed after it got further than before.
    A stop by people is never undone. Whoever resumes the run by hand gives it all its retries anew.
    """

    retries: int = 0
    retry_on: PolicyOnFailure = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobValue:
    """A knob's value and who chose it."""

    value: Value
    origin: Origin = "default"


RANGES: Mapping[str, tuple[float, float]] = {  # least and most of each number outside the knobs, by dotted field
    "data.eval_share": (0.0, 0.5),
    "hardware.policy_ranks": (1, 4096),
    "hardware.rollout_engines": (1, 1024),
    "hardware.tensor_parallel_size": (1, 64),
    "hardware.cpus_per_worker": (1, 256),
    "profile.first_step": (1, MAX_FIRST_STEP),
    "profile.num_steps": (1, MAX_STEPS),
    "policy.retries": (0, 10),
}

SECTIONS: Mapping[str, type[Any]] = {
    "trainer": Trainer,
    "model": ModelSource,
    "data": DataSource,
    "reward": RewardSource,
    "hardware": Hardware,
    "profile": ProfileConfig,
    "policy": RunPolicy,
}
