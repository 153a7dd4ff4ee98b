"""What makes decoding token by token cheap: a cache that does not copy itself, and attention that does not either.

Shapes: N samples, H heads of queries, K of keys and values, T tokens so far, D of a head.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from jobs.engine.roles import packed_attention

_NAME = "grouped_sdpa"
_ROOM = 64
"""Tokens for which a cache gets room at a time: it is copied once in so many, and at most that many are never used."""


class _RoomyLayer(DynamicLayer):
    """Keys and values of one layer [N, K, T, D], at the beginning of tensors that have room for the next tokens.

    That of transformers is copied whole with every token.
    """

    keys: Tensor
    values: Tensor
    _room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new tokens; return those of all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin = self.get_seq_length()
        end = begin + key_states.shape[-2]
        if self._room is None or end > self._room[0].shape[-2]:
            self._room = (self._with_room(self.keys, key_states, end), self._with_room(self.values, value_states, end))
        keys, values = self._room
        keys[:, :, begin:end], values[:, :, begin:end] = key_states, value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    @staticmethod
    def _with_room(held: Tensor, new: Tensor, end: int) -> Tensor:
        num_samples, num_heads, _, size = new.shape
        room = new.new_empty((num_samples, num_heads, end + _ROOM, size))
        if held.numel():
            room[:, :, : held.shape[-2]] = held
        return room

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these samples, in this order; one may be kept several times."""
        super().batch_select_indices(indices)
        self._room = None


def growing_cache() -> Cache:
    """Return an empty cache of keys and values, for models of transformers."""
    return Cache(layer_class_to_replicate=_RoomyLayer)


@contextlib.contextmanager
def decoding(model: Any) -> Iterator[None]:
    """Let a model with the attention `sdpa` compute that of single tokens without copies of its keys and values.

    That of packed sequences is the same where nothing is packed.
    """
    before = model.config._attn_implementation  # its setter would go through all modules
    if before not in ("sdpa", packed_attention.NAME):
        yield
        return
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before


def grouped_sdpa(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Return the attention of queries [N, H, Q, D] to keys and values [N, K, T, D]: [N, Q, H, D].

    Under a mask `sdpa_attention_forward` of transformers, which is called for several tokens at once, repeats keys and
    values for every head of a group. For a single token the heads of a group can stand where the tokens do.
    """
    num_samples, num_heads, num_queries, size = query.shape
    num_groups = key.shape[1]
    if num_queries > 1 or num_groups == num_heads or options.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if attention_mask is not None and attention_mask.shape[1] > 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    attended = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(num_samples, num_groups, -1, size),
        key,
        value,
        attn_mask=attention_mask,
        scale=options.get("scaling"),
    )
    return attended.reshape(num_samples, 1, num_heads, value.shape[-1]), None


AttentionInterface.register(_NAME, grouped_sdpa)
AttentionMaskInterface.register(_NAME, sdpa_mask)
