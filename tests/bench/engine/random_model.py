"""A model of 34 million parameters with random weights, and prompts that say how long its responses will be.

`python -m tests.bench.engine.random_model FOLDER` makes both models of the benchmark: `plain`, all weights random, and
`ending`, the same with a few weights chosen so that responses end.

A random model ends a response once in 512 tokens, at random; a length that is cut off for all (`ignore_eos`) has no
padding and no early end, which is what real responses are like. `ending` therefore counts. Its prompts carry *ticks*, a
token that nothing else contains. The first head of the first layer has queries of zero, so it attends evenly to all n
tokens so far; its first value is 1 for a tick and 0 for all else, so it yields ticks / n, which one channel of the
residual stream carries to the end past all other layers. Another channel holds a constant. The end token's row of the
output layer weighs the two against each other:

    logit(end) = SHARPNESS * (1 - TOKENS_PER_TICK * ticks / n) + what is random

far below all others while the text is short, far above them once it is longer than its ticks allow. Where in between a
response ends is drawn with everything else, so lengths of one prompt differ by some percent and those of different
prompts by as much as their ticks. Both trainers run it as any Qwen2; none is told where to stop.
"""

import json
import math
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

SEED = 11
CONFIG: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
TICK = "~"
SHARPNESS = 40.0
TOKENS_PER_TICK = 8.4
LIKELIEST_OTHERS = math.log(CONFIG["vocab_size"]) + 0.1  # of 512 logits with a deviation of 0.45
_COUNT, _CONSTANT = 0, 1  # channels of the residual stream
_CONSTANT_VALUE = 0.3
_NEVER = -100.0


def expected_tokens(prompt_tokens: int, ticks: int, *, most: int) -> float:
    """Return the mean length of a response, its end token included, cut at `most` tokens."""
    survives, mean = 1.0, 0.0
    for length in range(1, most + 1):
        mean += survives
        seen = prompt_tokens + length - 1
        logit = SHARPNESS * (1 - TOKENS_PER_TICK * ticks / seen)
        survives *= 1 / (1 + math.exp(min(logit - LIKELIEST_OTHERS, 700.0)))
    return mean


@cache
def ticks_for(tokens: int, *, other_prompt_tokens: int, most: int) -> int:
    """Return how many ticks make responses of about `tokens` tokens, in a prompt that has so many others."""
    return min(
        range(1, 60),
        key=lambda ticks: abs(expected_tokens(other_prompt_tokens + ticks, ticks, most=most) - tokens),
    )


def make_models(folder: Path, *, text_from: Path) -> dict[str, Path]:
    """Make both models below `folder` unless they are there; return where each is. The tokenizer is `text_from`'s."""
    models = {name: folder / name for name in ("plain", "ending")}
    for name, target in models.items():
        if not (target / "made.json").exists():
            _make(target, text_from=text_from, ends=name == "ending")
            (target / "made.json").write_text(json.dumps({"seed": SEED, **CONFIG}))
    return models


def _make(target: Path, *, text_from: Path, ends: bool) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in TEXT_FILES:
        shutil.copy(text_from / file, target / file)
    tokenizer = Tokenizer.from_file(str(target / "tokenizer.json"))
    special = json.loads((target / "tokenizer_config.json").read_text())
    ids = {kind: tokenizer.token_to_id(special[f"{kind}_token"]) for kind in ("pad", "bos", "eos")}
    torch.manual_seed(SEED)
    model = Qwen2ForCausalLM(Qwen2Config(**CONFIG, **{f"{kind}_token_id": value for kind, value in ids.items()}))
    if ends:
        (tick,) = tokenizer.encode(TICK, add_special_tokens=False).ids
        never = [tick, *(i for i in tokenizer.get_added_tokens_decoder() if i != ids["eos"])]
        with torch.no_grad():
            make_ending(model, tick=tick, end=ids["eos"], never=never)
    model.generation_config.update(eos_token_id=ids["eos"], pad_token_id=ids["pad"], bos_token_id=ids["bos"])
    model.save_pretrained(target)
    print(f"{target}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)


def make_ending(model: Any, *, tick: int, end: int, never: list[int]) -> None:
    """Choose the weights that count ticks and end a response; the tokens `never` are not sampled."""
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
    for layer in model.model.layers:
        for rows in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
            rows[[_COUNT, _CONSTANT]] = 0.0
    embedding[:, _COUNT] = 0.0
    embedding[:, _CONSTANT] = _CONSTANT_VALUE
    embedding[tick, _COUNT] = 1.0

    attention = model.model.layers[0].self_attn
    size = attention.head_dim
    attention.q_proj.weight[:size] = 0.0
    attention.q_proj.bias[:size] = 0.0
    attention.v_proj.weight[0] = 0.0
    attention.v_proj.bias[0] = 0.0
    attention.v_proj.weight[0, _COUNT] = 1 / float(model.model.layers[0].input_layernorm(embedding[tick])[_COUNT])
    attention.o_proj.weight[:, 0] = 0.0
    attention.o_proj.weight[_COUNT, 0] = 1.0

    scale = _final_scale(model, never=never)
    head[:, [_COUNT, _CONSTANT]] = 0.0
    head[end] = 0.0
    head[end, _CONSTANT] = SHARPNESS * scale / _CONSTANT_VALUE
    head[end, _COUNT] = -SHARPNESS * TOKENS_PER_TICK * scale
    for token in never:
        head[token, _CONSTANT] = _NEVER * scale / _CONSTANT_VALUE


def _final_scale(model: Any, *, never: list[int]) -> float:
    """Return by what the last normalization divides, measured on random text."""
    import torch

    usable = torch.tensor([i for i in range(CONFIG["vocab_size"]) if i not in never])
    tokens_BL = usable[torch.randint(len(usable), (4, 128))]
    residual: list[Any] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, args: residual.append(args[0]))
    model.model(input_ids=tokens_BL)
    hook.remove()
    return float(residual[0].pow(2).mean(-1).sqrt().mean())


def main() -> None:
    """Make both models."""
    from tests.bench.engine.workloads import bundled_model

    if len(sys.argv) != 2:
        sys.exit("Say where: python -m tests.bench.engine.random_model FOLDER")
    make_models(Path(sys.argv[1]), text_from=bundled_model())


if __name__ == "__main__":
    main()
