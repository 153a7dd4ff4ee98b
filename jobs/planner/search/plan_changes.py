"""Single steps that change memory or speed and not what is learned: each a knob or two.

A plan change says what it changes in this run, or that it changes nothing here. Whether it helps is estimated by
whoever asks (jobs.planner.search.advice). Sources: the orders of trying in the trainers' performance guides, which
jobs/catalog/advice holds in words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import is_live, knobs
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.planner.job import Fleet, Job, Layout
from jobs.planner.search.axes import Changes
from jobs.planner.trainer import planning_of

Make = Callable[["Situation"], Changes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The run as it is, what the planner reads in it, and the devices there are."""

    spec: RunSpec
    job: Job
    fleet: Fleet

    def now(self, knob_id: str) -> Value:
        """Return a knob's value; None if the run does not have it or it means nothing here."""
        if knob_id.startswith("hardware."):
            return int(getattr(self.spec.hardware, knob_id.removeprefix("hardware.")))
        chosen = self.spec.knobs.get(knob_id)
        if chosen is None or not is_live(knob_id, self.spec.values()):
            return None
        return chosen.value

    def has(self, knob_id: str) -> bool:
        """Return True if the run has the knob and it means something here."""
        return knob_id in self.spec.knobs and is_live(knob_id, self.spec.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One step. `title` says it in a few words; `make` returns its changes, None where there is nothing to change."""

    id: str
    title: str
    make: Make


def plan_changes() -> tuple[PlanChange, ...]:
    """Return every plan change of every trainer; one that does not concern a run makes nothing of it."""
    return _PLAN_CHANGES


def _sets(knob_id: str, value: Value, **also: Value) -> Make:
    """Set a knob, and others beside it where the run has them (their ids with two underscores for the dot)."""

    def make(here: Situation) -> Changes | None:
        if not here.has(knob_id) or here.now(knob_id) == value:
            return None
        beside = {name.replace("__", "."): other for name, other in also.items()}
        return {knob_id: value, **{name: other for name, other in beside.items() if name in here.spec.knobs}}

    return make


def _scales(knob_id: str, factor: float, *, least: int = 1, most: int = 1 << 24) -> Make:
    """Multiply a whole number."""

    def make(here: Situation) -> Changes | None:
        value = here.now(knob_id) if here.has(knob_id) else None
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        scaled = int(value * factor)
        return {knob_id: scaled} if least <= scaled <= most and scaled != value else None

    return make


def _shifts(knob_id: str, by: float, *, least: float, most: float) -> Make:
    """Add to a share."""

    def make(here: Situation) -> Changes | None:
        value = here.now(knob_id) if here.has(knob_id) else None
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        shifted = round(min(max(value + by, least), most), 2)
        return {knob_id: shifted} if (shifted - value) * by > 0 else None

    return make


def _samples_per_rank(here: Situation) -> int:
    return int(DERIVED["batch.samples_per_update"](here.spec)) // max(here.job.policy.layout.data, 1)


def _micro_batch(factor: float) -> Make:
    """Scale the micro-batch, to a size with which an update is whole on every rank; the batch stays as it is."""

    def make(here: Situation) -> Changes | None:
        value = here.now("train.micro_batch_size")
        if not isinstance(value, int) or not here.has("train.micro_batch_size"):
            return None
        each = max(_samples_per_rank(here), 1)
        value = min(value, each)
        wanted = max(int(value * factor), 1)
        sizes = [size for size in range(1, each + 1) if each % size == 0]
        changed = (
            max(s for s in sizes if s <= wanted) if factor < 1 else min((s for s in sizes if s >= wanted), default=1)
        )
        return {"train.micro_batch_size": changed} if (changed - value) * (factor - 1) > 0 else None

    return make


def _one_sample(here: Situation) -> Changes | None:
    value = here.now("train.micro_batch_size")
    return {"train.micro_batch_size": 1} if isinstance(value, int) and value > 2 else None


def _token_budget(knob_id: str, factor: float) -> Make:
    """Scale a budget of tokens; it stays no smaller than the longest sample on the devices that share it."""

    def make(here: Situation) -> Changes | None:
        value = here.now(knob_id) if here.has(knob_id) else None
        if not isinstance(value, int):
            return None
        degree = planning_of(here.spec).budget_devices(here.job.policy.layout)
        least = -(-int(DERIVED["length.longest"](here.spec)) // degree)
        budget = max(int(value * factor), least)
        return {knob_id: budget} if (budget - value) * (factor - 1) > 0 else None

    return make


_GROUP_SIZES: Mapping[str, Callable[[Layout], int]] = {
    "parallel.sequence_parallel_size": lambda layout: layout.context * layout.ulysses,
    "parallel.context_parallel_size": lambda layout: layout.context,
    "parallel.tensor_parallel_size": lambda layout: layout.tensor,
    "parallel.expert_parallel_size": lambda layout: layout.expert,
}
"""How many devices share a sample by a knob."""


def _parallel(knob_id: str, factor: float) -> Make:
    """Scale how many devices share a sample, within a node."""

    def make(here: Situation) -> Changes | None:
        if not here.has(knob_id):
            return None
        now = _GROUP_SIZES[knob_id](here.job.policy.layout)
        scaled = int(now * factor)
        if not 1 <= scaled <= here.fleet.devices_per_node or scaled == now:
            return None
        changes: dict[str, Value] = {knob_id: scaled}
        if knob_id == "parallel.sequence_parallel_size" and scaled > 1 and "train.packing" in here.spec.knobs:
            changes["train.packing"] = True
        return changes

    return make


def _stages(factor: float) -> Make:
    def make(here: Situation) -> Changes | None:
        layout, layers = here.job.policy.layout, here.job.policy.model.num_layers
        stages = int(layout.pipeline * factor)
        is_by_hand = layout.first_stage_layers or layout.last_stage_layers
        if not here.has("parallel.pipeline_parallel_size") or is_by_hand or stages < 1 or stages == layout.pipeline:
            return None
        return None if layers % stages else {"parallel.pipeline_parallel_size": stages}

    return make


def _engine_size(factor: float) -> Make:
    """Spread an engine over more or fewer devices; with as many devices as before there are fewer or more engines."""

    def make(here: Situation) -> Changes | None:
        engine = here.job.engine
        if engine is None:
            return None
        tensor, pool = int(engine.tensor * factor), engine.num_engines * engine.tensor
        if tensor < 1 or tensor == engine.tensor or pool % tensor or tensor > pool:
            return None
        return planning_of(here.spec).engine_changes(tensor=tensor, engines=pool // tensor)

    return make


def _more_devices(here: Situation) -> Changes | None:
    """Give the policy twice the devices, where the fleet has them."""
    return planning_of(here.spec).more_devices(here)


def _next_stage(by: int) -> Make:
    def make(here: Situation) -> Changes | None:
        if not here.has("memory.zero_stage"):
            return None
        stage = int(str(here.now("memory.zero_stage"))) + by
        if not 0 <= stage <= 3 or (stage == 3 and here.job.policy.layout.tensor > 1):
            return None
        changes: dict[str, Value] = {"memory.zero_stage": str(stage)}
        if "memory.trainer_sleep" in here.spec.knobs and stage < 3:
            changes["memory.trainer_sleep"] = False
        return changes

    return make


def _offload_between(on: bool, prefix: str) -> Make:
    """Move the states of FSDP (critic's too) or Megatron to the host between phases, or leave them on the device."""

    def make(here: Situation) -> Changes | None:
        if prefix == "fsdp":
            names = ["memory.param_offload", "memory.optimizer_offload"]
            names += ["memory.critic_param_offload", "memory.critic_optimizer_offload"]
        else:
            names = ["memory.megatron_param_offload", "memory.megatron_optimizer_offload"]
        changes = {name: on for name in names if here.has(name) and bool(here.now(name)) != on}
        return changes or None

    return make


def _host_fsdp(on: bool) -> Make:
    def make(here: Situation) -> Changes | None:
        if not here.has("parallel.fsdp_version") or bool(here.now("memory.cpu_offload_policy")) == on:
            return None
        return {"parallel.fsdp_version": "2", "memory.cpu_offload_policy": on}

    return make


def _host_megatron(on: bool) -> Make:
    def make(here: Situation) -> Changes | None:
        if not here.has("memory.megatron_cpu_optimizer") or bool(here.now("memory.megatron_cpu_optimizer")) == on:
            return None
        changes: dict[str, Value] = {"memory.megatron_cpu_optimizer": on}
        if on:
            changes |= {"memory.megatron_cpu_optimizer_share": 1.0, "memory.megatron_optimizer_offload": False}
        return changes

    return make


def _adam_on_host(on: bool) -> Make:
    def make(here: Situation) -> Changes | None:
        if not here.has("memory.adam_offload") or bool(here.now("memory.adam_offload")) == on:
            return None
        if on and (here.now("optimizer.kind") == "muon" or here.now("memory.master_precision") == "bfloat16"):
            return None
        beside = {"memory.trainer_sleep": False} if on and here.now("memory.trainer_sleep") else {}
        return {"memory.adam_offload": on, **beside}

    return make


def _recompute(how: str) -> Make:
    def make(here: Situation) -> Changes | None:
        if not here.has("memory.megatron_recompute") or here.now("memory.megatron_recompute") == how:
            return None
        if how != "full":
            return {"memory.megatron_recompute": how}
        return {
            "memory.megatron_recompute": "full",
            "memory.megatron_recompute_method": "uniform",
            "memory.megatron_recompute_layers": 1,
        }

    return make


def _by_tokens(here: Situation) -> Changes | None:
    """Fill micro-batches by tokens, as many as the micro-batch has now at most."""
    if here.now("train.dynamic_batch") is not False or not is_in(here.spec.algorithm, "rl"):
        return None
    policy = here.job.policy
    changes: dict[str, Value] = {"train.dynamic_batch": True, "train.max_tokens_per_gpu": policy.tokens}
    if "train.packing" in here.spec.knobs:
        changes["train.packing"] = True
    return changes


def _sleeping(here: Situation) -> Changes | None:
    return {"rollout.sleep": True} if here.has("rollout.sleep") and not here.now("rollout.sleep") else None


def _newest_flash(here: Situation) -> Changes | None:
    can = "flash3" in here.fleet.accelerator.attention
    if not can or not here.has("kernels.attention") or here.now("kernels.attention") == "flash_attention_3":
        return None
    choices = knobs()["kernels.attention"].choices
    return {"kernels.attention": "flash_attention_3"} if "flash_attention_3" in choices else None


_PLAN_CHANGES = tuple(
    PlanChange(id=name, title=title, make=make)
    for name, title, make in (
        ("checkpointing", "Recompute activations", _sets("memory.gradient_checkpointing", True)),
        ("recompute_full", "Recompute whole layers", _recompute("full")),
        ("recompute_selective", "Recompute attention alone", _recompute("selective")),
        ("keep_activations", "Keep activations", _sets("memory.gradient_checkpointing", False)),
        ("recompute_none", "Keep all activations", _recompute("none")),
        ("fused_head", "Compute the output layer in chunks", _sets("kernels.fused_head", True)),
        ("entropy_chunks", "Take the entropy in chunks", _sets("memory.entropy_chunking", True)),
        (
            "entropy_again",
            "Compute the entropy again in the backward pass",
            _sets("memory.entropy_checkpointing", True),
        ),
        ("liger", "Use Liger's fused kernels", _sets("kernels.liger", True)),
        ("flash", "Use the newest flash attention", _newest_flash),
        ("fast_attention", "Use flash attention", _sets("kernels.attention", "flash_attention_2")),
        ("packing", "Join samples without padding", _sets("train.packing", True)),
        ("by_tokens", "Fill micro-batches by tokens", _by_tokens),
        ("micro_half", "Halve the micro-batch", _micro_batch(0.5)),
        ("micro_one", "One sample per micro-batch", _one_sample),
        ("micro_double", "Double the micro-batch", _micro_batch(2)),
        ("tokens_half", "Halve the token budget", _token_budget("train.max_tokens_per_gpu", 0.5)),
        ("tokens_double", "Double the token budget", _token_budget("train.max_tokens_per_gpu", 2)),
        (
            "critic_tokens_half",
            "Halve the critic's token budget",
            _token_budget("train.critic_max_tokens_per_gpu", 0.5),
        ),
        ("score_half", "Halve the micro-batch of scoring", _scales("train.score_micro_batch_size", 0.5)),
        ("score_double", "Double the micro-batch of scoring", _scales("train.score_micro_batch_size", 2, most=256)),
        (
            "score_tokens_half",
            "Halve the token budget of scoring",
            _token_budget("train.score_max_tokens_per_gpu", 0.5),
        ),
        ("zero_up", "Shard more with ZeRO", _next_stage(1)),
        ("zero_down", "Shard less with ZeRO", _next_stage(-1)),
        ("reshard", "Give up weights after the forward pass", _sets("memory.reshard_after_forward", True)),
        ("keep_weights", "Keep weights after the forward pass", _sets("memory.reshard_after_forward", False)),
        (
            "activations_to_host",
            "Move activations to the host",
            _sets("memory.activation_offload", True, memory__gradient_checkpointing=True),
        ),
        ("reference_to_host", "Keep the reference on the host", _sets("memory.reference_offload", True)),
        ("reward_to_host", "Keep the reward model on the host", _sets("memory.reward_offload", True)),
        ("reference_on_device", "Keep the reference on the device", _sets("memory.reference_offload", False)),
        ("reward_on_device", "Keep the reward model on the device", _sets("memory.reward_offload", False)),
        ("states_between", "Move training states to the host between phases", _offload_between(True, "fsdp")),
        ("states_stay", "Leave training states on the device", _offload_between(False, "fsdp")),
        (
            "megatron_states_between",
            "Move training states to the host between phases",
            _offload_between(True, "megatron"),
        ),
        ("megatron_states_stay", "Leave training states on the device", _offload_between(False, "megatron")),
        (
            "trainer_sleep",
            "Move training states to the host while engines generate",
            _sets("memory.trainer_sleep", True),
        ),
        ("engine_sleep", "Let engines sleep while training", _sleeping),
        ("adam_to_host", "Run the optimizer on the host", _adam_on_host(True)),
        ("adam_on_device", "Run the optimizer on the device", _adam_on_host(False)),
        ("fsdp_to_host", "Keep weights and optimizer on the host", _host_fsdp(True)),
        ("fsdp_on_device", "Keep weights and optimizer on the device", _host_fsdp(False)),
        ("megatron_to_host", "Run the optimizer on the host", _host_megatron(True)),
        ("megatron_on_device", "Run the optimizer on the device", _host_megatron(False)),
        ("sequence_up", "Share sequences among more devices", _parallel("parallel.sequence_parallel_size", 2.0)),
        ("context_up", "Share sequences among more devices", _parallel("parallel.context_parallel_size", 2.0)),
        ("tensor_up", "Divide layers among more devices", _parallel("parallel.tensor_parallel_size", 2.0)),
        ("expert_up", "Spread experts over more devices", _parallel("parallel.expert_parallel_size", 2.0)),
        ("pipeline_up", "Cut the layers into more stages", _stages(2.0)),
        ("engine_up", "Spread an engine over more devices", _engine_size(2.0)),
        ("sequence_down", "Share sequences among fewer devices", _parallel("parallel.sequence_parallel_size", 0.5)),
        ("context_down", "Share sequences among fewer devices", _parallel("parallel.context_parallel_size", 0.5)),
        ("tensor_down", "Divide layers among fewer devices", _parallel("parallel.tensor_parallel_size", 0.5)),
        ("expert_down", "Spread experts over fewer devices", _parallel("parallel.expert_parallel_size", 0.5)),
        ("pipeline_down", "Cut the layers into fewer stages", _stages(0.5)),
        ("engine_down", "Spread an engine over fewer devices", _engine_size(0.5)),
        (
            "share_down",
            "Give the engine less memory",
            _shifts("rollout.gpu_memory_fraction", -0.1, least=0.1, most=0.95),
        ),
        ("share_up", "Give the engine more memory", _shifts("rollout.gpu_memory_fraction", 0.1, least=0.1, most=0.92)),
        ("eager", "Generate without CUDA graphs", _sets("rollout.enforce_eager", True)),
        ("graphs", "Generate with CUDA graphs", _sets("rollout.enforce_eager", False)),
        ("prefix_cache", "Cache prompts that are alike", _sets("rollout.enable_prefix_caching", True)),
        ("sequences_half", "Halve the sequences of an engine", _scales("rollout.max_num_seqs", 0.5, least=16)),
        ("sequences_double", "Double the sequences of an engine", _scales("rollout.max_num_seqs", 2, most=2048)),
        ("devices", "Train on twice the devices", _more_devices),
    )
)
