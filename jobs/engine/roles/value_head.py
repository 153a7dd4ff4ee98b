"""A model that says a number: a language model's layers under a head of one output. A critic says of each token what
reward is still to come, a reward model says of a whole sequence what it is worth.

Both are transformers' class for sequence classification with one label, so that a critic can start from a reward model.
Shapes: B sequences, L positions, N counted tokens, D hidden.
"""

import contextlib
import json
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jobs.engine.batch import Batch
from jobs.engine.data.model_files import text_files
from jobs.engine.data.text import TextModel
from jobs.engine.problem import RunProblem
from jobs.engine.roles.head import before_counted
from jobs.engine.roles.language_model import read_model
from jobs.engine.roles.packed_attention import why_not
from jobs.engine.roles.sharded_load import whole_while_used

FIELD = "knobs.models.critic_path"


def load_value_model(
    folder: Path,
    *,
    precision: str,
    is_packed: bool,
    sharding: contextlib.AbstractContextManager[None] | None = None,
) -> Any:
    """Return the model of a folder as one of values, as `language_model.load_model` returns one of tokens.

    A folder of a language model has no such head: it starts at zero, so that first values are 0 in every layout, and
    what the layers have learned is not disturbed. Raises: RunProblem naming `models.critic_path`.
    """
    model, head = _load(folder, precision=precision, is_packed=is_packed, sharding=sharding, field=FIELD)
    value_counted_tokens(model, head, is_packed=model.is_packed)
    return model


def load_score_model(
    folder: Path,
    *,
    precision: str,
    is_packed: bool,
    field: str,
    sharding: contextlib.AbstractContextManager[None] | None = None,
    has_head: bool = False,
) -> Any:
    """Return the model of a folder as one of whole sequences (see `score_last_tokens`), its head as `load_value_model`
    has it. One that `has_head` is refused without. Raises: RunProblem naming `field`.
    """
    model, head = _load(
        folder, precision=precision, is_packed=is_packed, sharding=sharding, field=field, has_head=has_head
    )
    score_last_tokens(model, head)
    return model


def _load(
    folder: Path,
    *,
    precision: str,
    is_packed: bool,
    sharding: contextlib.AbstractContextManager[None] | None,
    field: str,
    has_head: bool = False,
) -> tuple[Any, torch.nn.Linear]:
    from transformers import AutoModelForSequenceClassification

    model, missing = read_model(
        AutoModelForSequenceClassification,
        folder,
        precision=precision,
        sharding=sharding,
        field=field,
        num_labels=1,
    )
    path, head = value_head(model, folder.name, field=field)
    own = {f"{path}.{name}" for name, _ in head.named_parameters()}
    if lost := sorted(set(missing) - (set() if has_head else own)):
        raise RunProblem(field, f"The model {folder.name!r} has no weights for {lost[0]} of its own architecture.")
    if missing:
        for parameter in head.parameters():
            getattr(parameter, "ds_tensor", parameter).data.zero_()  # in ZeRO-3 a rank has its part alone
    with whole_while_used(model) if sharding is not None else contextlib.nullcontext():
        model.packing_problem = why_not(model) if is_packed else ""
    model.is_packed = is_packed and not model.packing_problem
    return model, head


def value_head(model: Any, name: str, *, field: str = FIELD) -> tuple[str, torch.nn.Linear]:
    """Return where the layer is that makes one number of a hidden state, and the layer.

    Raises: RunProblem naming `field` where the family has none that works token by token.
    """
    layers = [
        (path, layer)
        for path, layer in model.named_children()
        if isinstance(layer, torch.nn.Linear) and layer.out_features == 1
    ]
    if len(layers) != 1 or model.base_model is model:
        raise RunProblem(
            field,
            f"The architecture of {name!r} has no scalar head in transformers ({type(model).__name__}). Use a model "
            "of another family with the same tokenizer.",
        )
    return layers[0]


def value_counted_tokens(model: Any, head: torch.nn.Linear, *, is_packed: bool) -> None:
    """Let calls of the model, `model(tokens_BL, mask_BL, lengths_B)`, return the values of counted tokens: float32
    [B, L], 0 elsewhere.

    That of a token is what the model expects before it sees it, as its log-probability is. Forward methods are replaced
    as `head.score_counted_tokens` does. The head computes in float32: 8 bits would round values to 1/256 of themselves.
    """
    model.is_packed = is_packed
    _put_head(model, head)
    model.forward = types.MethodType(_values, model)


def score_last_tokens(model: Any, head: torch.nn.Linear) -> None:
    """Let calls of the model, `model(tokens_BL, mask_BL, lengths_B)`, return the score of each sequence: what the head
    says of the last counted token, float32 [B]. That is transformers' own score of the sequence up to there.
    """
    _put_head(model, head)
    model.forward = types.MethodType(_scores, model)


def score_texts(folder: Path, model: Any) -> dict[str, bytes]:
    """Return what a folder of a model of `load_score_model` holds besides weights, from that of the model it began as.

    The configuration says that the model has one label, and which token is padding. Where padding is the end token no
    token is named: transformers looks for the last token that is no padding, and would pass over the end of a response.
    """
    files = {name: data for name, data in text_files(folder).items() if name != "generation_config.json"}
    text = TextModel(folder)
    config = json.loads(files["config.json"]) | {
        "architectures": [type(model).__name__],
        "id2label": {"0": "reward"},
        "label2id": {"reward": 0},
        "pad_token_id": None if text.pad_id in text.eos_ids else text.pad_id,
    }
    return files | {"config.json": (json.dumps(config, indent=2) + "\n").encode()}


@torch.no_grad()
def scored(model: Any, batch: Batch, micros: Sequence[Tensor], device: str) -> Tensor:
    """Return what a model of `load_score_model` says of each sequence, on the CPU: [B]. `micros`: see Cut."""
    scores_B = torch.zeros(batch.num_sequences)
    for rows in micros:
        here = batch.rows(rows).to(device)
        scores_B[rows] = model(here.tokens_BL, here.mask_BL, here.lengths_B).float().cpu()
    return scores_B


def _put_head(model: Any, head: torch.nn.Linear) -> None:
    head.forward = types.MethodType(_in_float32, head)
    object.__setattr__(model, "scalar_head", head)  # not a second module of that name in its weights


def _in_float32(head: Any, hidden_ND: Tensor) -> Tensor:
    bias = None if head.bias is None else head.bias.float()
    return torch.nn.functional.linear(hidden_ND.float(), head.weight.float(), bias)


def _hidden(model: Any, tokens_BL: Tensor, mask_BL: Tensor, lengths_B: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    def run(**inputs: Any) -> Tensor:
        hidden_BLD: Tensor = model.base_model(**inputs, use_cache=False).last_hidden_state
        return hidden_BLD

    return before_counted(model, run, tokens_BL, mask_BL, lengths_B)


def _values(model: Any, tokens_BL: Tensor, mask_BL: Tensor, lengths_B: Tensor | None = None) -> Tensor:
    hidden_ND, rows_N, columns_N = _hidden(model, tokens_BL, mask_BL, lengths_B)
    values_N = model.scalar_head(hidden_ND).squeeze(-1)
    return torch.zeros(tokens_BL.shape, device=tokens_BL.device).index_put((rows_N, columns_N + 1), values_N)


def _scores(model: Any, tokens_BL: Tensor, mask_BL: Tensor, lengths_B: Tensor | None = None) -> Tensor:
    hidden_BD, _, _ = _hidden(model, tokens_BL, _behind_last(mask_BL), lengths_B)
    scores_B: Tensor = model.scalar_head(hidden_BD).squeeze(-1)
    return scores_B


def _behind_last(mask_BL: Tensor) -> Tensor:
    """Return a mask of the one position behind each sequence's last counted token, behind its first without any:
    [B, L + 1].
    """
    columns_L = torch.arange(mask_BL.shape[1], device=mask_BL.device)
    last_B = torch.where(mask_BL, columns_L, 0).amax(dim=1)
    behind = mask_BL.new_zeros((mask_BL.shape[0], mask_BL.shape[1] + 1))
    return behind.scatter_(1, last_B.unsqueeze(1) + 1, True)
