"""Keys of a config that change no parameter, whatever the model: how it is run, written, named and sampled."""

import re

from jobs.planner.shapes.config_values import ConfigValues

NEUTRAL = frozenset(
    [
        "_name_or_path",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "add_cross_attention",
        "architectures",
        "attention_dropout",
        "attention_probs_dropout_prob",
        "attn_implementation",
        "attn_pdrop",
        "auto_map",
        "aux_loss_alpha",
        "bos_token",
        "bos_token_id",
        "chunk_size_feed_forward",
        "cross_attention_hidden_size",
        "dropout",
        "dtype",
        "embd_pdrop",
        "emb_pdrop",
        "embedding_multiplier",
        "eos_token",
        "eos_token_id",
        "finetuning_task",
        "hidden_act",
        "hidden_activation",
        "hidden_dropout",
        "hidden_dropout_prob",
        "id2label",
        "initializer_range",
        "is_decoder",
        "is_encoder_decoder",
        "label2id",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "layerdrop",
        "logits_scaling",
        "logit_scale",
        "max_position_embeddings",
        "max_sequence_length",
        "model_type",
        "n_group",
        "norm_eps",
        "norm_topk_prob",
        "num_logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "pad_token_id",
        "partial_rotary_factor",
        "pretraining_tp",
        "problem_type",
        "quantization_config",
        "quantization",
        "resid_pdrop",
        "residual_dropout",
        "residual_multiplier",
        "return_dict",
        "rms_norm_eps",
        "rope_interleave",
        "rope_local_base_freq",
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "rotary_dim",
        "rotary_pct",
        "rotary_emb_base",
        "routed_scaling_factor",
        "router_aux_loss_coef",
        "router_dtype",
        "router_jitter_noise",
        "scoring_func",
        "seq_aux",
        "safetensors",
        "sep_token_id",
        "seq_length",
        "task_specific_params",
        "tf_legacy_loss",
        "tokenizer_class",
        "topk_group",
        "topk_method",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "unk_token_id",
        "unsloth_version",
        "use_cache",
        "use_flash_attn",
        "sliding_window",
        "tie_word_embeddings",
        "use_sliding_window",
        "max_window_layers",
        "vision_config",
        "audio_config",
        "layer_types",
        "attention_multiplier",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "query_pre_attn_scalar",
        "attention_scale",
        "ep_size",
        "swiglu_limit",
    ]
)

# What follows from other keys, or is read under another name, in types that are known.
IMPLIED = frozenset(
    [
        "attention_chunk_size",
        "attention_sink_size",
        "head_dim",
        "num_hash_layers",
        "num_hidden_layers",
        "num_key_value_heads",
        "qk_head_dim",
        "qk_rope_head_dim",
        "sliding_window_size",
        "time_step_rank",
    ]
)

_SIZE = re.compile(r".*(size|dim|rank|width|heads|experts|layers)")
_PREDICTION = re.compile(r"(^|_)(mtp|nextn)_|_mtp(_|$)")  # layers of multi-token prediction, which are told apart


def is_size_of_its_own(config: ConfigValues, key: str) -> bool:
    """Return True if a key is called a size and is a number above 1, unless the key it ends with says the same."""
    value = config.values.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 2:
        return False
    if _SIZE.fullmatch(key) is None or _PREDICTION.search(key):
        return False
    parts = key.split("_")
    return not any(config.values.get("_".join(parts[index:])) == value for index in range(1, len(parts)))
