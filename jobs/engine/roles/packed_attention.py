"""Sequences one after the other in a single row, without padding, each attending to itself alone.

Everything else in a layer works token by token, so only positions and attention need to know where a sequence begins.
Shapes: B sequences, L positions, T tokens of all sequences together, H heads, K of keys and values, D a head.
"""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from jobs.engine.problem import first_sentence

NAME = "pitwall_packed"
"""Of the attention, in transformers' table of them."""

_TRIED_LENGTHS = (5, 3)
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}


def why_not(model: Any) -> str:
    """Return why the sequences of this model of transformers cannot be packed, as the end of a sentence; "" if they
    can, and then its attention does so wherever it gets what `packed_row` returns. Else it works as before.

    Layers that see less than their whole sequence, or keep a state instead of attention, would mix sequences up. So
    each layer has to come here, and two packed sequences have to be what they are alone: both are tried.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if getattr(config, "layer_types", None) is None and getattr(config, "sliding_window", None):
        kinds.add("sliding_attention")
    if kinds != {"full_attention"}:
        return f"it has layers of {', '.join(sorted(kinds - {'full_attention'}))}"
    _register()
    before = config._attn_implementation
    model.set_attn_implementation(NAME)
    if config._attn_implementation != NAME:
        return "its attention cannot be replaced"
    if problem := _tried(model, num_layers=config.num_hidden_layers):
        model.set_attn_implementation(before)
    return problem


def packed_row(tokens_BL: Tensor, lengths_B: Tensor) -> tuple[dict[str, Any], Tensor]:
    """Return the inputs of a model of which `why_not` is "", and where each sequence begins in the row: [B].

    What it says of the row has one row of T tokens: those of the first sequence, then those of the second, and so on.
    """
    positions_BL = torch.arange(tokens_BL.shape[1], device=tokens_BL.device).expand(tokens_BL.shape)
    is_there_BL = positions_BL < lengths_B.unsqueeze(1)
    bounds = torch.nn.functional.pad(lengths_B.cumsum(0, dtype=torch.int32), (1, 0))
    inputs = {
        "input_ids": tokens_BL[is_there_BL].unsqueeze(0),
        "position_ids": positions_BL[is_there_BL].unsqueeze(0),
        # A mask of four dimensions is handed on as it is; without one transformers makes one of T x T.
        "attention_mask": torch.empty((1, 1, 1, 0), device=tokens_BL.device),
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": tokens_BL.shape[1],
        "max_length_k": tokens_BL.shape[1],
    }
    return inputs, bounds[:-1].long()


def attend(
    module: torch.nn.Module,
    query_BHLD: Tensor,
    key_BKLD: Tensor,
    value_BKLD: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int = 0,
    calls: list[dict[str, Any]] | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Return causal attention [B, L, H, D] within each sequence of a packed row; of rows as they are without bounds.

    Called by transformers for every layer; `calls` gets what it says besides. There is no dropout: the trainer has none.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if cu_seq_lens_q is None:
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query_BHLD, key_BKLD, value_BKLD, attention_mask, scaling=scaling, **others
        )
    if calls is not None:
        calls.append(others)
    query_THD, key_TKD, value_TKD = (part.squeeze(0).transpose(0, 1) for part in (query_BHLD, key_BKLD, value_BKLD))
    way = _by_kernel if _has_kernel(query_THD, value_TKD) else _by_length
    attended_THD = way(query_THD, key_TKD, value_TKD, cu_seq_lens_q, max_length_q, scaling)
    return attended_THD.unsqueeze(0), None


def _has_kernel(query_THD: Tensor, value_TKD: Tensor) -> bool:
    """Return whether the FlashAttention within torch takes these: on a GPU, of 16 bits, heads of up to 256."""
    head_dim = query_THD.shape[-1]
    is_half = query_THD.dtype in (torch.bfloat16, torch.float16)
    return query_THD.is_cuda and is_half and head_dim == value_TKD.shape[-1] <= 256 and head_dim % 8 == 0


def _by_kernel(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, bounds: Tensor, longest: int, scaling: float | None
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    attended: Tensor = varlen_attn(
        query_THD,
        key_TKD,
        value_TKD,
        bounds,
        bounds,
        longest,
        longest,
        scale=scaling,
        window_size=(-1, 0),  # causal
        enable_gqa=query_THD.shape[1] != key_TKD.shape[1],
    )
    return attended


def _by_length(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, bounds: Tensor, longest: int, scaling: float | None
) -> Tensor:
    """Attend to sequences of one length at once where they follow each other, as those of a micro-batch often do."""
    del longest
    attended, begin = [], 0
    for length, run in itertools.groupby(bounds.diff().tolist()):
        end = begin + length * len(list(run))
        query, key, value = (
            whole[begin:end].unflatten(0, (-1, length)).transpose(1, 2) for whole in (query_THD, key_TKD, value_TKD)
        )
        part = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        attended.append(part.transpose(1, 2).flatten(0, 1))
        begin = end
    return torch.cat(attended)


def _tried(model: Any, *, num_layers: int) -> str:
    """Return what is wrong with two packed sequences; "" if they are what each is alone."""
    device = next(model.parameters()).device
    longest = max(_TRIED_LENGTHS)
    tokens_BL = torch.arange(len(_TRIED_LENGTHS) * longest, device=device).view(-1, longest)
    tokens_BL = tokens_BL.remainder(model.get_input_embeddings().num_embeddings)
    inputs, _ = packed_row(tokens_BL, torch.tensor(_TRIED_LENGTHS, device=device))
    calls: list[dict[str, Any]] = []
    try:
        with torch.no_grad():
            together = model.base_model(**inputs, calls=calls, use_cache=False).last_hidden_state[0].float()
    except Exception as error:  # a model raises whatever it stumbles over; all mean that it does not take such a row
        return f"it does not take two sequences in one row ({first_sentence(error).rstrip('.')})"
    if len(calls) != num_layers:
        return f"{num_layers - len(calls)} of its {num_layers} layers do not ask where a sequence begins"
    if any(call.get("sliding_window") for call in calls):
        return "its layers see a part of the sequence each"
    with torch.no_grad():
        alone = torch.cat(
            [
                model.base_model(input_ids=row_L[None, :length], use_cache=False).last_hidden_state[0].float()
                for row_L, length in zip(tokens_BL, _TRIED_LENGTHS, strict=True)
            ]
        )
    if not torch.allclose(together, alone, atol=_TOLERANCE.get(model.dtype, 0.0)):
        return "two sequences in one row change each other"
    return ""


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
