"""The constants by name, file by file of `constants/*.toml`, which says what each one is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConstants:
    """Of `decode.toml`."""

    bandwidth: float
    packed_share: float
    compute: float
    compute_experts: float
    tile_rows: float
    prefill: float
    prefill_experts: float
    rollout_share: float
    layer_seconds: float
    expert_layer_seconds: float
    exchange_seconds: float
    pcie_exchange_seconds: float
    expert_exchange_seconds: float
    expert_reduce_seconds: float
    sglang_exchange: float
    first_engine_seconds: float
    eager_layer_seconds: float
    eager_expert_layer_seconds: float
    sampler_layer_seconds: float
    sequence_seconds: float
    sequence_share_ahead: float
    link: float
    others: float
    band_dense: float
    band_experts: float
    band_generation: float
    band_rollout: float
    band_lengths: float
    live_share: float
    mean_share: float
    mean_share_cap: float
    mean_prompt_share: float
    mean_prompt_cap: float
    spread: float
    drawn_again: float
    fp8_gain: float
    pace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConstants:
    """Of `engine.toml`."""

    context_bytes: float
    non_torch_bytes_single: float
    non_torch_bytes_group: float
    non_torch_bytes_group_early: float
    non_torch_bytes_pipeline: float
    sampler_bytes: float
    sampler_bytes_second: float
    sampler_bytes_sorting: float
    forward_factor: float
    graph_bytes: float
    graph_bytes_second: float
    asleep_share_graphs: float
    sglang_window_share: float
    sglang_nccl_bytes: float
    sglang_state_ratio: float
    sglang_load_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateConstants:
    """Of `estimate.toml`."""

    band_dense: float
    band_experts: float
    band_expert_modules: float
    band_unmeasured: float
    band_sharded_quantized: float
    shm_device_bytes: float
    batch_token_bytes: float
    host_memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConstants:
    """Of `memory.toml`."""

    allocator: float
    allocator_expandable: float
    allocator_blocks: float
    allocator_varied: float
    allocator_megatron: float
    context_bytes: float
    communicator_bytes: float
    further_communicator_bytes: float
    expert_buffer_bytes: float
    fp8_copies: float
    scores: float
    scores_differentiated: float
    routed_copies: float
    expert_imbalance: float
    offloaded_layers: float
    logits_unfused: float
    logits_divided: float
    logits_gaps: float
    logits_gaps_expandable: float
    logits_compiled: float
    logits_parallel: float
    logits_inplace: float
    logits_chunked: float
    logits_liger: float
    logits_half: float
    logits_kept: float
    logits_streamed: float
    logits_forward: float
    logits_entropy: float
    logits_entropy_compiled: float
    deepspeed_live_elements: float
    deepspeed_bucket_elements: float
    deepspeed_group_elements: float
    host_process_bytes: float
    host_pinned: float
    host_growth_bytes: float
    host_training_bytes: float
    host_half_bytes: float
    host_packed_bytes: float
    states_band: float
    gradients_band: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConstants:
    """Of `network.toml`."""

    link_share: float
    node_share: float
    staged_share: float
    link_latency: float
    node_latency: float
    tensor_overlap: float
    exchange_share: float
    flex_share: float
    flex_node_share: float
    exchange_overlap: float
    weights_overlap: float
    context_overlap: float
    fetch_seconds: float
    sync_seconds: float
    sync_local_tensor_seconds: float
    sync_local_rate: float
    sync_tensor_seconds: float
    sync_tensor_rate: float
    sync_ipc_seconds: float
    sync_ipc_expert_seconds: float
    sync_ipc_far_expert_seconds: float
    sync_ipc_rate: float
    sync_handle_seconds: float
    sync_regroup_seconds: float
    sync_bucket_seconds: float
    sync_bucket_tensor_seconds: float
    sync_bucket_expert_seconds: float
    sync_bucket_rate: float
    sync_packed_rate: float
    sync_packed_sharded_rate: float
    sync_group_seconds: float
    sync_group_local_seconds: float
    sync_broadcast_expert_seconds: float
    sync_broadcast_rate: float
    sync_gather_rate: float
    sync_slow_rate: float
    sync_fetch_rate: float
    sync_delta_expert_seconds: float
    sync_delta_rate: float
    sync_quantized: float
    sync_band_ipc: float
    sync_band_handles: float
    sync_band_tensors: float
    sync_band_buckets: float
    sync_band_packed: float
    sync_band_broadcast: float
    sync_band_deltas: float
    sync_pace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedConstants:
    """Of `speed.toml`."""

    products: float
    ridge: float
    products_fp8: float
    fp32_share: float
    attention_softmax_rate: float
    attention_flash2_share: float
    attention_flash2_rate: float
    attention_eager: float
    attention_backward: float
    bandwidth: float
    moved_eager: float
    moved_fused: float
    moved_liger: float
    moved_compiled: float
    moved_megatron: float
    moved_experts: float
    moved_grouped: float
    moved_fused_experts: float
    layer_seconds: float
    layer_seconds_compiled: float
    hook_seconds: float
    layer_seconds_experts: float
    layer_seconds_grouped: float
    layer_seconds_flex: float
    layer_seconds_zero3: float
    scan_seconds: float
    expert_seconds: float
    adapter_passes: float
    adapter_launches: float
    ring_share: float
    dequantize_bytes: float
    step_seconds: float
    scoring_share: float
    update_share: float
    update_share_megatron: float
    pass_seconds: float
    slot_seconds: float
    host_share: float
    host_overlap: float
    host_slowdown: float
    logit_bytes_unfused: float
    logit_bytes_compiled: float
    logit_bytes_chunked: float
    logit_bytes_parallel: float
    logit_bytes_inplace: float
    adam_bytes: float
    adam_bf16_bytes: float
    adam_8bit_bytes: float
    muon_bytes: float
    sgd_bytes: float
    unfused_optimizer: float
    cpu_adam_seconds: float
    deepspeed_offload_seconds: float
    unfused_cpu_adam: float
    band_dense: float
    band_experts: float
    band_adapters: float
    band_stock: float
    band_scoring: float
    band_unknown: float
    band_update: float
    band_step: float
    band_waiting: float
    band_talking: float
    other_share: float
    move_rate_share: float
    wake_seconds: float
    restart_share: float
    update_pace: float
    scoring_pace: float
