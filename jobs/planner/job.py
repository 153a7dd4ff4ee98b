"""What the planner is asked: models, how each is trained or served, and on what. All values are resolved.

Everything here is plain data: it is made of a RunSpec (jobs.planner.read.spec), of a case file, or by the search.
Sizes are tokens, elements or bytes as the names say.
"""

from dataclasses import dataclass, field
from typing import Literal

from jobs.catalog.accelerator import Accelerator
from jobs.planner.shapes.model_shape import ModelShape

Family = Literal["plain", "deepspeed", "fsdp", "megatron"]
Method = Literal["full", "lora", "qlora"]
Checkpointing = Literal["none", "selective", "full"]
Attention = Literal["eager", "sdpa", "flash2", "flash3"]
Compute = Literal["bf16", "fp16", "fp8", "fp32"]
Kernels = Literal["eager", "fused", "liger", "compiled", "megatron"]
Head = Literal["unfused", "compiled", "chunked", "parallel", "inplace", "half"]
MixedPrecision = Literal["fsdp", "autocast", "pure"]
Allocator = Literal["", "expandable", "blocks"]
Sampler = Literal["", "sort", "flashinfer"]
Objective = Literal["lm", "pairs", "scalar"]
Dispatcher = Literal["alltoall", "flex"]
SyncTransport = Literal["ipc", "handles", "tensors", "buckets", "packed", "broadcast", "deltas"]
Optimizer = Literal["adam", "adam_bf16", "adam_8bit", "muon", "sgd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The hardware. `host_bytes`: RAM per node, 0 if unknown; `node_bandwidth`: network out of a node, bytes/s one
    way, 0 to assume what nodes of such devices have.

    `price`: money per device hour, None if nobody set one.
    """

    accelerator: Accelerator
    num_devices: int
    devices_per_node: int = 8
    host_bytes: int = 0
    shm_bytes: int = 0
    node_bandwidth: float = 0.0
    price: float | None = None
    currency: str = "USD"

    @property
    def num_nodes(self) -> int:
        """Nodes that hold the devices."""
        return -(-self.num_devices // self.devices_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the devices of a training group divide a model: sizes of tensor, pipeline (and its virtual chunks), context,
    Ulysses sequence, expert and expert-tensor parallelism; what is left is data parallelism.

    `shards`: 0 nothing is sharded over data parallelism, 1 optimizer states, 2 gradients too, 3 weights too (the ZeRO
    stages; FSDP full shard is 3, Megatron's distributed optimizer 1). `shard_group`: ranks that share one copy, 0 for
    all (hybrid sharding, ZeRO++ secondary partition). `first_stage_layers`, `last_stage_layers`: layers of the end
    stages of a pipeline where they are set by hand, 0 where all stages hold the same; the stages between hold the rest.
    `is_ring_balanced`: ranks of context parallelism hold parts of both ends of a sequence (zigzag), so that none of
    them has more of the causal half than others. `has_scan_parts`: in layers with a state they keep their parts of a
    sequence, too (flash-linear-attention's own context parallelism), where others exchange them for heads.
    """

    num_devices: int = 1
    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    context: int = 1
    ulysses: int = 1
    expert: int = 1
    expert_tensor: int = 1
    shards: int = 0
    shard_group: int = 0
    has_sequence_parallel: bool = True
    is_ring_balanced: bool = False
    has_scan_parts: bool = False
    first_stage_layers: int = 0
    last_stage_layers: int = 0

    @property
    def data(self) -> int:
        """Data-parallel ranks, those that see different samples."""
        return self.num_devices // (self.tensor * self.pipeline * self.context * self.ulysses)

    @property
    def shard_ranks(self) -> int:
        """Ranks over which states are divided: data, context and sequence, as all hold the same weights."""
        return self.shard_group or self.num_devices // (self.tensor * self.pipeline)

    @property
    def expert_data(self) -> int:
        """Ranks that hold the same experts."""
        return max(self.num_devices // (self.pipeline * self.expert * self.expert_tensor), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """What lives in host memory: a share of the optimizer during its step; `params` during forward and backward.

    `activations`: checkpoints of layers go to the host. `between_phases`: weights, gradients and optimizer states are
    moved away while another phase runs on the same devices; `optimizer_between_phases` alone; `copies_process`: all of
    it, gradient buffers too, while weights have another copy there, which engines are sent (slime).
    `is_moved_by_phase`: each phase loads what it needs as it begins and sends it back as it ends, where others do so
    once a step, when engines give way. `has_one_thread`: a process updates states on the host with one thread, as those
    of Ray do unless they ask for more.
    """

    optimizer: float = 0.0
    has_one_thread: bool = False
    is_moved_by_phase: bool = False
    params: bool = False
    activations: bool = False
    params_between_phases: bool = False
    optimizer_between_phases: bool = False
    copies_process: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How one model is trained.

    `weight_bytes` per element of what the trainer holds resident (2 for bf16, 4 for fp32 under FSDP mixed precision);
    `base_bytes` per element of a frozen base under LoRA; `gradient_bytes`; `has_master`: copies beside bf16
    weights, of `master_bytes` each, and `step_buffer_bytes` that stay for the optimizer's step; `is_saved_beside`: a
    copy of masters and moments is on the host while a checkpoint is written beside training. `micro_batch` sequences of
    `sequence` tokens each are one pass of a rank group before context parallelism divides them (packed: one row of
    `sequence` tokens; `document` is then the mean length of its samples, 0 the row);
    `num_micro_batches` per optimizer step and rank. `optimizer_in_backward`: each gradient is used and dropped at once.
    `head`: how logits and loss are computed ("inplace": gradients take the place of the logits), `head_chunk` tokens or
    entries of the vocabulary (`head_axis`) at once where chunked (`head_chunks`: or so many chunks a micro-batch),
    while all logits stay if it `keeps_logits`; `has_entropy`: the whole distribution's entropy is taken too, not
    chunked. `attention`: "eager" stores scores. `adapter_parameters` overrides the count that rank and targets give;
    `num_adapters` of them are trained side by side. `keeps_gradients`: unsharded gradients stay between micro-batches.
    `logit_bytes`, `scored_logit_bytes`: of a token and vocabulary entry, with gradients and without, where a trainer's
    own code was counted; 0: as usual of its head. `has_grouped_attention`: the kernel takes keys and values once for
    all query heads that share them. `reduced_bytes`: of an element in which gradients are sent, 0: as they are kept.
    `has_flat_gradients`: weights that are not trained lie in the same flat parameters as adapters, which have gradients
    as a whole (FSDP1 with use_orig_params). `has_sharded_ends`: embedding and head are units of sharding of their own,
    not of the whole model's. `is_sharded_by_tensor`: every tensor by itself (FSDP2), so that a state dict is no copy.
    `head` "half": logits stay in 16 bits through the loss. `mixed_precision`, where what is held is wider than what is
    computed with: "fsdp", weights are cast as they are gathered (or are held in the type that is computed in);
    "autocast", operations cast their inputs, and what lies between them stays in the weights' type (torch.autocast);
    "pure", nothing is held wider, moments included, and there is no master copy. `ends_bytes` per element of embedding,
    head and norms beside a quantized base, 0: as is computed with (PEFT's preparation for training in 4 bits makes them
    float32). `has_adapter_dropout`, `is_dora`: of adapters. `allocator`: torch's, "expandable" segments or "blocks", ""
    unknown; `has_varied_lengths`: micro-batches are of many sizes, which leaves gaps. `adapter_bytes`, 0: as
    `weight_bytes` (PEFT makes adapters float32 beside a base of 16 bits). `keeps_frozen_inputs`: what goes into frozen
    matrices and norms is kept as if they were trained (bitsandbytes before 0.43.2). `keeps_last_inputs`: what went into
    packed matrices stays while the next micro-batch computes (the same, in a loop that holds on to its last loss).
    `has_joined_projections`: queries, keys and values are views of one tensor, which stays whole. `dispatcher`: how
    tokens reach experts of other ranks, "alltoall", a copy for each expert, or "flex", a library's own kernels (DeepEP,
    HybridEP), one for each rank or node that has any of them; `hides_exchange`: while another micro-batch computes.
    `has_fused_experts`: the two grouped products of experts are two kernels, with the gate and the casts to 8 bits in
    them. `has_graphs`: layers are replayed as CUDA graphs, so that the host does not start their kernels one by one.
    `loads_whole`: every device has the whole model before it is sharded (ZeRO-3 without `zero.Init`).
    """

    model: ModelShape
    layout: Layout
    family: Family
    method: Method = "full"
    lora_rank: int = 0
    lora_targets: tuple[str, ...] = ("all-linear",)
    adapter_parameters: int = 0
    num_adapters: int = 1
    weight_bytes: float = 2.0
    base_bytes: float = 2.0
    gradient_bytes: float = 2.0
    optimizer: Optimizer = "adam"
    has_master: bool = True
    master_bytes: float = 4.0
    step_buffer_bytes: float = 0.0
    is_saved_beside: bool = False
    has_fused_optimizer: bool = True
    optimizer_in_backward: bool = False
    compute: Compute = "bf16"
    kernels: Kernels = "eager"
    attention: Attention = "flash2"
    has_grouped_attention: bool = False
    checkpointing: Checkpointing = "full"
    head: Head = "unfused"
    head_chunk: int = 0
    head_chunks: int = 0
    head_axis: Literal["tokens", "vocabulary"] = "tokens"
    keeps_logits: bool = False
    logit_bytes: float = 0.0
    scored_logit_bytes: float = 0.0
    has_entropy: bool = False
    objective: Objective = "lm"
    micro_batch: int = 1
    sequence: int = 2048
    document: int = 0
    is_padded: bool = False
    num_micro_batches: int = 1
    keeps_gradients: bool = False
    has_flat_gradients: bool = False
    has_sharded_ends: bool = False
    is_sharded_by_tensor: bool = False
    reduced_bytes: float = 0.0
    resharded: bool = True
    bucket_bytes: int = 0
    mixed_precision: MixedPrecision = "fsdp"
    ends_bytes: float = 0.0
    has_adapter_dropout: bool = False
    is_dora: bool = False
    adapter_bytes: float = 0.0
    keeps_frozen_inputs: bool = False
    keeps_last_inputs: bool = False
    has_joined_projections: bool = False
    dispatcher: Dispatcher = "alltoall"
    hides_exchange: bool = False
    has_fused_experts: bool = False
    has_graphs: bool = False
    allocator: Allocator = ""
    has_varied_lengths: bool = False
    loads_whole: bool = False
    offload: Offload = field(default_factory=Offload)

    def __post_init__(self) -> None:
        if self.mixed_precision == "pure" and self.compute != "fp32":
            self._hold_no_more_than(2.0)

    def _hold_no_more_than(self, width: float) -> None:
        """Make all that is held as narrow as `width` bytes, as training in 16 bits alone has it."""
        for name in ("weight_bytes", "base_bytes", "gradient_bytes"):
            object.__setattr__(self, name, min(getattr(self, name), width))
        object.__setattr__(self, "has_master", False)
        if self.optimizer == "adam":  # torch's moments have the type of the weights
            object.__setattr__(self, "optimizer", "adam_bf16")

    @property
    def attends_by(self) -> Attention:
        """The kernel of attention that runs, whatever is asked for: of a model that Transformers has none for its
        modules are eager. Who fuses norms, or compiles, brings modules of its own."""
        is_of_transformers = self.kernels in ("eager", "liger")
        return self.attention if self.model.has_fused_attention or not is_of_transformers else "eager"

    @property
    def defers_reduction(self) -> bool:
        """Whether whole gradients are added up over the micro-batches and reduced with the last one: there are
        several."""
        return self.keeps_gradients and self.num_micro_batches > 1

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one rank, after context and sequence parallelism; pairs count both sides."""
        rows = self.micro_batch * (2 if self.objective == "pairs" else 1)
        return -(-rows * self.sequence // (self.layout.context * self.layout.ulysses))


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenModel:
    """A model that only scores: reference, reward model, teacher. `shards` as in Layout; `is_offloaded`: in host memory
    while it is not used; `is_swapped_in`: from where it takes the place of the policy's weights for a whole phase (NeMo
    RL), not unit by unit in each pass. `has_head`: it computes log-probabilities over the vocabulary. `pool`: whose
    devices it sits on, "policy" or "critic"; or its own role, if it has devices of its own, as many as its layout says.
    With `weight_bytes` 0 it is the policy with its adapters off, and holds nothing."""

    role: Literal["reference", "reward", "teacher"]
    model: ModelShape
    layout: Layout
    weight_bytes: float = 2.0
    is_offloaded: bool = False
    is_swapped_in: bool = False
    has_head: bool = True
    micro_batch: int = 1
    sequence: int = 2048
    pool: Literal["policy", "critic", "reference", "reward", "teacher"] = "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A rollout engine: one of `num_engines` alike, each over tensor * pipeline devices.

    `utilization` means what the engine means by it: of vLLM a share of total memory, of SGLang of what is free.
    `weight_bytes` per element of matrices (None: as the checkpoint holds them), `kv_bytes` per element. `version` is
    "" for the newest known. `sleep_level`: 0 none, 1 weights to the host, 2 weights dropped. 0 for a size that the
    engine chooses itself (`max_num_seqs`, `max_batched_tokens`, `max_model_len`, `block_tokens` of its cache).
    `name` "trainer": no engine beside, the trainer's own code draws token by token. `shares_weights`: it generates by
    the trainer's own weights, so it has none, and nothing is synced. `sampler`: how
    vLLM cuts the distribution to top-k and top-p, "sort" or by FlashInfer's kernels (its start-up log says "Using
    FlashInfer for top-p & top-k"); "" as its release does by itself. `images_per_prompt`: as many as vLLM is told to
    take at most; None: as it does by itself, as many as a sequence holds; 0: text alone, and no image tower is loaded.
    `is_compiled`: it finds what torch.compile made at an earlier start, and does not compile.
    """

    model: ModelShape
    name: Literal["vllm", "sglang", "trainer"] = "vllm"
    version: str = ""
    num_engines: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    utilization: float = 0.9
    weight_bytes: float | None = None
    kv_bytes: float = 2.0
    max_num_seqs: int = 0
    max_batched_tokens: int = 0
    max_model_len: int = 0
    is_eager: bool = False
    has_prefix_cache: bool = True
    sleep_level: int = 0
    kv_cache_bytes: int = 0
    block_tokens: int = 0
    shares_weights: bool = False
    sampler: Sampler = ""
    images_per_prompt: int | None = None
    is_compiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of prompts and responses: the caps, and the means where they are known or assumed (0: unknown).

    `spread` is sigma of ln(length) of responses.
    """

    max_prompt: int
    max_response: int
    mean_prompt: float = 0.0
    mean_response: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What one step of reinforcement learning generates and how it is used.

    `generations`: how often a step may draw, where groups without variance are drawn again.
    `score_micro_batch` sequences of `score_sequence` tokens are one pass of the policy where no gradient is needed (as
    in Training); 0: those of its training.
    """

    prompts: int
    samples_per_prompt: int
    lengths: Lengths
    epochs: int = 1
    updates: int = 1
    has_old_logprobs: bool = True
    generations: int = 1
    reward_seconds: float = 0.0
    score_micro_batch: int = 0
    score_sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job, on a fleet. Supervised: `policy` alone. Reinforcement learning: also `rollouts` and `engine`.

    `placement`: "colocated" — engine and trainer take turns on the same devices; "split" — the engine has
    `engine_devices` of its own. `schedule`: how rollout and training overlap; `staleness`: how many batches more than
    one may be under way, 0 where each is waited for. `samples` and `num_steps` say how long the run is (steps 0:
    unknown). `batch_tokens`: tokens of one supervised optimizer step over all ranks, 0 to estimate them from the
    micro-batches. `scores_mismatches`: policy and frozen models also score as many responses again before a
    supervised step learns (KTO's reference point). `precomputes_reference`: instead of a reference beside it, the
    policy scores all samples once before it is trained. `scores_beside_graph`: a frozen model scores a micro-batch
    after the policy's forward pass, whose activations wait for the backward pass meanwhile. `checkpoint_copies` kept
    on disk. `critic_pool`: whose devices the critic sits on; "critic" for its own, as many as its layout says.
    `sync_bucket_bytes`: of one buffer of the weight sync, 0 if the trainer sends layer by layer; `sync_transport`:
    the way that weights travel to engines on devices of their own, None for what is usual
    (jobs.planner.time.weight_sync). `unpriced`: ids of knobs that change memory or time in a way that is not
    estimated here; `notes`: sentences on what was assumed in reading.
    """

    algorithm: str
    fleet: Fleet
    policy: Training
    critic: Training | None = None
    frozen: tuple[FrozenModel, ...] = ()
    engine: Engine | None = None
    rollouts: Rollouts | None = None
    placement: Literal["colocated", "split"] = "colocated"
    schedule: Literal["sync", "one_step_off", "async"] = "sync"
    staleness: float = 0.0
    engine_devices: int = 0
    num_steps: int = 0
    batch_tokens: int = 0
    scores_mismatches: bool = False
    precomputes_reference: bool = False
    scores_beside_graph: bool = False
    checkpoint_every: int = 0
    critic_pool: Literal["policy", "critic"] = "policy"
    sync_bucket_bytes: int = 0
    sync_transport: SyncTransport | None = None
    unpriced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
