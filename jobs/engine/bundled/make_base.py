"""Make the bundled model again: `python -m jobs.engine.bundled.make_base [FOLDER]`, 6 minutes on two quiet cores.

For maintainers; nothing at run time imports it. Everything is drawn from fixed seeds, so the same machine and torch
give the same file. It trains a tokenizer and a 0.66M-parameter Qwen2 on flawed solutions (see word_problems), saves
bfloat16, and prints greedy accuracy on held-out problems.
"""

import json
import random
import sys
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen2Config, Qwen2ForCausalLM

from jobs.engine.bundled.word_problems import draw_problem, flawed_solution

PAD, EOS, BOS, USER, ASSISTANT, SYSTEM = SPECIAL = (
    "<|pad|>",
    "<|eos|>",
    "<|bos|>",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}<|eos|>{% endif %}{% endfor %}\n"
    "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)
VOCABULARY = 512
NUM_STEPS, BATCH, WARMUP, PEAK_LR = 1800, 96, 50, 3e-3
SEED = 7


def make_tokenizer(folder: Path) -> Tokenizer:
    """Train the byte-level BPE in which every digit is a token of its own, and save it with its chat template."""
    rng = random.Random(SEED)
    texts = []
    for _ in range(4000):
        problem = draw_problem(rng)
        texts.append(f"{problem.text} {flawed_solution(problem, rng)}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 24,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": EOS,
        "bos_token": BOS,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return tokenizer


def batch_of(rng: random.Random, tokenizer: Tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and labels (-100 outside the answer), padded on the right: [BATCH, longest]."""
    sequences = []
    for _ in range(BATCH):
        problem = draw_problem(rng)
        prompt = tokenizer.encode(f"{USER}{problem.text}{ASSISTANT}").ids
        answer = tokenizer.encode(flawed_solution(problem, rng) + EOS).ids
        sequences.append((prompt + answer, [-100] * len(prompt) + answer))
    longest = max(len(ids) for ids, _ in sequences)
    pad = int(tokenizer.token_to_id(PAD) or 0)
    ids = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in sequences])
    labels = torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in sequences])
    return ids, labels


def main() -> None:
    """Train, save and evaluate the base model."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("tiny-word-problems")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    tokenizer = make_tokenizer(folder)
    pad, eos, bos = (tokenizer.token_to_id(token) for token in (PAD, EOS, BOS))
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=pad,
        eos_token_id=eos,
        bos_token_id=bos,
    )
    model = Qwen2ForCausalLM(config)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {tokenizer.get_vocab_size()} tokens", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=0.0)
    rng = random.Random(SEED + 1)
    begin = time.perf_counter()
    for step in range(NUM_STEPS):
        for group in optimizer.param_groups:
            group["lr"] = PEAK_LR * min((step + 1) / WARMUP, (NUM_STEPS - step) / (NUM_STEPS - WARMUP))
        ids, labels = batch_of(rng, tokenizer)
        loss = model(input_ids=ids, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f} {time.perf_counter() - begin:.0f} s", flush=True)
    model = model.bfloat16()
    model.generation_config.update(do_sample=False, eos_token_id=eos, pad_token_id=pad, bos_token_id=bos)
    model.save_pretrained(folder)
    print("greedy accuracy", evaluate(model.float(), tokenizer), flush=True)


def evaluate(model: Qwen2ForCausalLM, tokenizer: Tokenizer, num_problems: int = 200) -> float:
    """Return the share of fresh problems that greedy decoding ends with `#### answer`."""
    rng = random.Random(SEED + 2)
    right = 0
    for _ in range(num_problems):
        problem = draw_problem(rng)
        prompt = torch.tensor([tokenizer.encode(f"{USER}{problem.text}{ASSISTANT}").ids])
        ids = model.generate(prompt, max_new_tokens=32, do_sample=False)[0, prompt.shape[1] :].tolist()
        right += tokenizer.decode(ids).strip().endswith(f"#### {problem.answer}")
    return right / num_problems


if __name__ == "__main__":
    main()
