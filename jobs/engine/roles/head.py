"""The output layer of a language model: where it is asked for, and no more of it at once than fits.

Logits are the largest tensor of training: 152,064 numbers for each token of Qwen2.5. They are needed only at positions
that predict a counted token, and in pieces: each is computed, made into a log-probability and an entropy, and let go;
the backward pass computes it once more. Shapes: B sequences, L positions, N counted tokens, D hidden, V vocabulary.
"""

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jobs.engine.losses import chosen_scores
from jobs.engine.roles.packed_attention import packed_row

CHUNK_ELEMENTS = 1 << 26
"""Logits that are held at once: 256 MiB of float32."""

_NUM_PROBES = 8
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}


def score_counted_tokens(model: Any, *, is_packed: bool = False, with_entropy_gradient: bool = False) -> None:
    """Let calls of the model, `model(tokens_BL, mask_BL, temperature, lengths_B)`, return what losses need of it and no
    logits.

    That is the log-probability and the entropy of each counted token under softmax(logits / temperature), float32
    [B, L] each, 0 elsewhere. Gradients flow through the log-probabilities, and through the entropies only
    `with_entropy_gradient`. The forward methods of this one model
    and of its output layer are replaced, so that DeepSpeed's hooks around them stay: in ZeRO-3 they gather the output
    layer once a call, whatever number of pieces a rank needs. A model whose logits are not just its output layer
    applied to its last hidden states (some families scale or cap them) computes all of them; `model.has_plain_head`
    says which. With `is_packed` (see packed_attention.why_not) nothing is computed for padding, where lengths are told.
    """
    model.has_plain_head = has_plain_head(model)
    model.is_packed = is_packed
    model.with_entropy_gradient = with_entropy_gradient
    if not model.has_plain_head:
        model.forward = types.MethodType(_score_all, model)
        return
    head = model.get_output_embeddings()
    head.with_entropy_gradient = with_entropy_gradient
    head.forward = types.MethodType(_score_chunks, head)
    model.forward = types.MethodType(_score_counted, model)


def has_plain_head(model: Any) -> bool:
    """Return whether the logits are the output layer applied to the last hidden states: tried on a few tokens."""
    head, base = model.get_output_embeddings(), model.base_model
    if not isinstance(head, torch.nn.Linear) or base is model:
        return False
    tokens_BL = torch.arange(_NUM_PROBES, device=head.weight.device).remainder(head.out_features).unsqueeze(0)
    with torch.no_grad():
        whole = model(input_ids=tokens_BL, use_cache=False).logits.float()
        plain = head(base(input_ids=tokens_BL, use_cache=False).last_hidden_state).float()
    return whole.shape == plain.shape and torch.allclose(whole, plain, atol=_TOLERANCE.get(head.weight.dtype, 0.0))


def _score_counted(
    model: Any, tokens_BL: Tensor, mask_BL: Tensor, temperature: float, lengths_B: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    def run(**inputs: Any) -> Tensor:
        hidden_BLD: Tensor = model.base_model(**inputs, use_cache=False).last_hidden_state
        return hidden_BLD

    hidden_ND, rows_N, columns_N = _before_counted(model, run, tokens_BL, mask_BL, lengths_B)
    scores = model.get_output_embeddings()(hidden_ND, tokens_BL[rows_N, columns_N + 1], temperature)
    return _at_counted(scores, tokens_BL, rows_N, columns_N)


def _before_counted(
    model: Any, run: Callable[..., Tensor], tokens_BL: Tensor, mask_BL: Tensor, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `run` says of the positions before counted tokens, and these positions: [N, ...], [N], [N]."""
    rows_N, columns_N = mask_BL[:, 1:].nonzero(as_tuple=True)
    if lengths_B is None or not model.is_packed:
        return run(input_ids=tokens_BL)[rows_N, columns_N], rows_N, columns_N
    inputs, begins_B = packed_row(tokens_BL, lengths_B)
    return run(**inputs)[0, begins_B[rows_N] + columns_N], rows_N, columns_N


def _at_counted(
    scores: tuple[Tensor, Tensor], tokens_BL: Tensor, rows_N: Tensor, columns_N: Tensor
) -> tuple[Tensor, Tensor]:
    logprobs_BL, entropies_BL = (
        torch.zeros(tokens_BL.shape, device=tokens_BL.device).index_put((rows_N, columns_N + 1), score_N)
        for score_N in scores
    )
    return logprobs_BL, entropies_BL


def _score_chunks(head: Any, hidden_ND: Tensor, targets_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    def score(hidden_nD: Tensor, targets_n: Tensor) -> tuple[Tensor, Tensor]:
        logits_nV = torch.nn.functional.linear(hidden_nD, head.weight, head.bias)
        return chosen_scores(
            logits_nV, targets_n, temperature=temperature, with_entropy_gradient=head.with_entropy_gradient
        )

    size = max(CHUNK_ELEMENTS // head.out_features, 1)
    if len(targets_N) <= size:
        return score(hidden_ND, targets_N)
    parts = [
        checkpoint(score, hidden_nD, targets_n, use_reentrant=False)
        for hidden_nD, targets_n in zip(hidden_ND.split(size), targets_N.split(size), strict=True)
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def _score_all(
    model: Any, tokens_BL: Tensor, mask_BL: Tensor, temperature: float, lengths_B: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    def run(**inputs: Any) -> Tensor:
        logits_BLV: Tensor = type(model).forward(model, **inputs, use_cache=False).logits
        return logits_BLV

    logits_NV, rows_N, columns_N = _before_counted(model, run, tokens_BL, mask_BL, lengths_B)
    scores = chosen_scores(
        logits_NV,
        tokens_BL[rows_N, columns_N + 1],
        temperature=temperature,
        with_entropy_gradient=model.with_entropy_gradient,
    )
    return _at_counted(scores, tokens_BL, rows_N, columns_N)
