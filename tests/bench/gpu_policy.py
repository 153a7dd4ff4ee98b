"""`make gpu-bench`: the policy side of the built-in trainer on one NVIDIA GPU, without Ray, vLLM, DeepSpeed or network.

Random weights in the shapes of Qwen2.5, scored and updated by the trainer's own output layer and losses
(jobs/engine/roles/head.py, jobs/engine/losses.py). Prints one JSON: for each shape and way to train the seconds of a
pass, tokens a second, the share of the GPU's peak (MFU), and the peak memory by phase; and how far bfloat16 is from
itself when the same step is computed another way. Needs torch and transformers alone, so that it runs on machines where
little is installed.

MFU counts 6 (training) or 2 (scoring) operations a parameter and token, those of causal attention, and the output layer
at counted tokens; what checkpointing computes again does not count.
"""

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from jobs.engine.batch import Batch, make_batch
from jobs.engine.losses import clipped_policy_loss, token_scores
from jobs.engine.micro_batches import Cut
from jobs.engine.roles import head, packed_attention
from jobs.engine.roles.compiled_layers import compile_layers

PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bfloat16, of NVIDIA's data sheets (SXM)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What makes a model: as in its config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    tie_word_embeddings: bool

    def config(self) -> Qwen2Config:
        """Return it for transformers."""
        return Qwen2Config(**asdict(self), max_position_embeddings=32768, pad_token_id=0, attn_implementation="sdpa")


SHAPES = {
    "tiny": Shape(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=512,
        tie_word_embeddings=True,
    ),
    "0.5B": Shape(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=151936,
        tie_word_embeddings=True,
    ),
    "1.5B": Shape(
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=28,
        num_attention_heads=12,
        num_key_value_heads=2,
        vocab_size=151936,
        tie_word_embeddings=True,
    ),
    "7B": Shape(
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        vocab_size=152064,
        tie_word_embeddings=False,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measurement: B sequences of L tokens a micro-batch, of which the last `answer` count.

    `is_chunked`: the output layer in pieces, as the trainer has it, or all logits. `is_compiled`: each layer by
    torch.compile (`kernels.compile_layers`). With `is_ragged` sequences have lengths from a sixteenth of
    `length` to all of it, one counted half each, and `is_packed` computes nothing for their padding.
    """

    shape: str
    num_sequences: int
    length: int
    answer: int
    has_checkpointing: bool
    has_optimizer: bool
    is_chunked: bool = True
    is_compiled: bool = False
    is_ragged: bool = False
    is_packed: bool = False

    def lengths(self) -> list[int]:
        """Return the tokens of each sequence: all alike, or their logarithms at equal distances."""
        if not self.is_ragged:
            return [self.length] * self.num_sequences
        return [round(self.length * 16 ** (-i / max(self.num_sequences - 1, 1))) for i in range(self.num_sequences)]

    def counted(self) -> list[int]:
        """Return how many tokens count at the end of each."""
        return [n // 2 if self.is_ragged else self.answer for n in self.lengths()]


CASES = (
    Case(shape="0.5B", num_sequences=16, length=2048, answer=1024, has_checkpointing=False, has_optimizer=True),
    Case(shape="0.5B", num_sequences=16, length=2048, answer=1024, has_checkpointing=True, has_optimizer=True),
    Case(
        shape="0.5B",
        num_sequences=4,
        length=2048,
        answer=1024,
        has_checkpointing=True,
        has_optimizer=True,
        is_chunked=False,
    ),
    Case(shape="1.5B", num_sequences=8, length=2048, answer=1024, has_checkpointing=False, has_optimizer=True),
    Case(shape="1.5B", num_sequences=16, length=2048, answer=1024, has_checkpointing=True, has_optimizer=True),
    Case(
        shape="1.5B",
        num_sequences=16,
        length=2048,
        answer=1024,
        has_checkpointing=True,
        has_optimizer=True,
        is_compiled=True,
    ),
    Case(
        shape="1.5B",
        num_sequences=8,
        length=2048,
        answer=1024,
        has_checkpointing=False,
        has_optimizer=True,
        is_compiled=True,
    ),
    Case(shape="7B", num_sequences=8, length=2048, answer=1024, has_checkpointing=True, has_optimizer=False),
    Case(
        shape="7B",
        num_sequences=8,
        length=2048,
        answer=1024,
        has_checkpointing=True,
        has_optimizer=False,
        is_compiled=True,
    ),
    Case(
        shape="7B",
        num_sequences=4,
        length=2048,
        answer=1024,
        has_checkpointing=False,
        has_optimizer=False,
        is_compiled=True,
    ),
)
_RAGGED = Case(
    shape="1.5B",
    num_sequences=16,
    length=2048,
    answer=1024,
    has_checkpointing=True,
    has_optimizer=True,
    is_ragged=True,
)
CASES = (*CASES, _RAGGED, replace(_RAGGED, is_packed=True))
SMALL = (
    Case(shape="tiny", num_sequences=4, length=32, answer=16, has_checkpointing=True, has_optimizer=True),
    Case(
        shape="tiny",
        num_sequences=4,
        length=32,
        answer=16,
        has_checkpointing=False,
        has_optimizer=True,
        is_chunked=False,
    ),
    Case(
        shape="tiny",
        num_sequences=4,
        length=32,
        answer=16,
        has_checkpointing=True,
        has_optimizer=True,
        is_ragged=True,
        is_packed=True,
    ),
)


def make_model(shape: str, device: str, *, dtype: torch.dtype = torch.bfloat16) -> Any:
    """Return a model with random weights, the same each time."""
    torch.manual_seed(0)
    with torch.device(device):
        previous = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            model = Qwen2ForCausalLM(SHAPES[shape].config())
        finally:
            torch.set_default_dtype(previous)
    return model.train()


def batch_of(case: Case, device: str) -> Batch:
    """Return a micro-batch of random tokens with advantages of both signs."""
    generator = torch.Generator().manual_seed(1)
    vocabulary = SHAPES[case.shape].vocab_size
    rows = [
        (torch.randint(1, vocabulary, (n,), generator=generator).tolist(), [i >= n - counted for i in range(n)])
        for n, counted in zip(case.lengths(), case.counted(), strict=True)
    ]
    return make_batch(rows, pad_id=0).to(device)


def training_flops(case: Case) -> float:
    """Return the operations of one forward and backward pass over the micro-batch; those for padding do not count."""
    shape = SHAPES[case.shape]
    head_dim = shape.hidden_size // shape.num_attention_heads
    attention = shape.hidden_size * shape.hidden_size * 2 + 2 * shape.hidden_size * head_dim * shape.num_key_value_heads
    layer = attention + 3 * shape.hidden_size * shape.intermediate_size
    tokens = sum(case.lengths())
    squares = sum(n * n for n in case.lengths())
    causal = 6 * shape.num_hidden_layers * shape.hidden_size * squares  # half of 12 L D T for each token
    counted = sum(case.counted()) if case.is_chunked else tokens
    return 6.0 * (shape.num_hidden_layers * layer * tokens + shape.vocab_size * shape.hidden_size * counted) + causal


class Gauge:
    """Seconds and peak memory of a phase, on CPU and GPU."""

    def __init__(self, device: str) -> None:
        self.is_gpu = device.startswith("cuda")

    def __call__(self, body: Callable[[], Any]) -> tuple[float, float]:
        """Return seconds and the most bytes that were held meanwhile (0 on CPU)."""
        if self.is_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        begin = time.perf_counter()
        body()
        if self.is_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - begin, float(torch.cuda.max_memory_allocated()) if self.is_gpu else 0.0


class Trainer:
    """A model with float32 master weights and torch's fused AdamW, as ZeRO-2 on one rank has them."""

    def __init__(self, case: Case, device: str) -> None:
        self.case, self.device = case, device
        self.model = make_model(case.shape, device)
        if case.has_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if case.is_packed and (reason := packed_attention.why_not(self.model)):
            raise ValueError(f"The model of {case.shape} cannot be packed: {reason}.")
        if case.is_chunked:
            head.score_counted_tokens(self.model, is_packed=case.is_packed)
        if case.is_compiled:
            compile_layers(self.model)
        self.used = list(self.model.parameters())
        self.masters = [p.detach().float() for p in self.used] if case.has_optimizer else []
        self.optimizer = torch.optim.AdamW(self.masters, lr=1e-6, fused=True) if case.has_optimizer else None

    def scores(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies of counted tokens."""
        if self.case.is_chunked:
            logprobs_BL, entropies_BL = self.model(batch.tokens_BL, batch.mask_BL, 1.0, batch.lengths_B)
            return logprobs_BL, entropies_BL
        return token_scores(self.model(input_ids=batch.tokens_BL, use_cache=False).logits, batch.tokens_BL)

    @torch.no_grad()
    def score(self, batch: Batch) -> None:
        """A pass without gradients."""
        self.scores(batch)

    def backward(self, batch: Batch) -> None:
        """Forward and backward of the clipped loss."""
        logprobs_BL, _ = self.scores(batch)
        advantages_BL = torch.where(
            batch.mask_BL, torch.linspace(-1, 1, len(batch.tokens_BL), device=self.device)[:, None], 0
        )
        clipped = clipped_policy_loss(
            logprobs_BL, logprobs_BL.detach(), advantages_BL, clip_low=0.2, clip_high=0.2, dual_clip=3.0
        )
        (torch.where(batch.mask_BL, clipped.loss_BL, 0.0).sum() / batch.num_trained_tokens).backward()

    @torch.no_grad()
    def step(self) -> None:
        """The optimizer on the masters, and the model's weights from them."""
        assert self.optimizer is not None
        for master, used in zip(self.masters, self.used, strict=True):
            master.grad = used.grad.float() if used.grad is not None else None
            used.grad = None
        self.optimizer.step()
        for master, used in zip(self.masters, self.used, strict=True):
            used.copy_(master)
            master.grad = None


def measure(case: Case, device: str, *, turns: int, peak_flops: float) -> dict[str, Any]:
    """Return what a case takes, medians over `turns` after one that warms up."""
    trainer, batch, gauge = Trainer(case, device), batch_of(case, device), Gauge(device)
    tokens = sum(case.lengths())
    flops = training_flops(case)
    found: dict[str, Any] = {"case": asdict(case), "parameters": sum(p.numel() for p in trainer.used)}
    found["states_bytes"] = float(torch.cuda.memory_allocated()) if gauge.is_gpu else 0.0
    phases: dict[str, list[tuple[float, float]]] = {"score": [], "backward": [], "optimizer": []}
    for _ in range(turns + 1):
        phases["score"].append(gauge(lambda: trainer.score(batch)))
        phases["backward"].append(gauge(lambda: trainer.backward(batch)))
        if case.has_optimizer:
            phases["optimizer"].append(gauge(trainer.step))
        else:
            for p in trainer.used:
                p.grad = None
    for name, rows in phases.items():
        if rows:
            seconds = statistics.median(row[0] for row in rows[1:])
            found[name] = {"seconds": seconds, "peak_bytes": max(row[1] for row in rows[1:])}
    for name, share in (("score", 1 / 3), ("backward", 1.0)):
        found[name] |= {
            "tokens_per_second": tokens / found[name]["seconds"],
            "mfu": share * flops / found[name]["seconds"] / peak_flops,
        }
    whole = found["backward"]["seconds"] + found.get("optimizer", {}).get("seconds", 0.0)
    found["update_mfu"] = flops / whole / peak_flops
    return found


def equality(device: str, shape: str) -> dict[str, float]:
    """Return how far one gradient in bfloat16 is from itself computed another way, as shares of its norm.

    `float32`: of the same weights in float32; `pieces`: sequences one by one, added up in float32; `whole_logits`: the
    output layer at once; `packed`: without padding.
    """
    lengths = (40, 64, 23, 57)
    generator = torch.Generator().manual_seed(2)
    vocabulary = SHAPES[shape].vocab_size
    rows = [
        (torch.randint(1, vocabulary, (n,), generator=generator).tolist(), [i >= n // 2 for i in range(n)])
        for n in lengths
    ]
    batch = make_batch(rows, pad_id=0).to(device)

    def gradient(*, dtype: torch.dtype, is_chunked: bool, size: int, is_packed: bool = False) -> Tensor:
        model = make_model(shape, device)
        model = model.to(dtype)
        if is_packed and (reason := packed_attention.why_not(model)):
            raise ValueError(f"The model of {shape} cannot be packed: {reason}.")
        if is_chunked:
            head.score_counted_tokens(model, is_packed=is_packed)
        sums = [torch.zeros(p.shape, device=device) for p in model.parameters()]
        for micro in Cut(size=size).split(batch):
            if is_chunked:
                logprobs_BL, _ = model(micro.tokens_BL, micro.mask_BL, 1.0, micro.lengths_B)
            else:
                logits = model(input_ids=micro.tokens_BL, use_cache=False).logits
                logprobs_BL = torch.where(micro.mask_BL, token_scores(logits, micro.tokens_BL)[0], 0.0)
            (-logprobs_BL.sum() / batch.num_trained_tokens).backward()
            for total, p in zip(sums, model.parameters(), strict=True):
                total += p.grad.float()
                p.grad = None
        return torch.cat([total.flatten() for total in sums])

    base = gradient(dtype=torch.bfloat16, is_chunked=True, size=4)
    others = {
        "float32": gradient(dtype=torch.float32, is_chunked=True, size=4),
        "pieces": gradient(dtype=torch.bfloat16, is_chunked=True, size=1),
        "whole_logits": gradient(dtype=torch.bfloat16, is_chunked=False, size=4),
        "packed": gradient(dtype=torch.bfloat16, is_chunked=True, size=4, is_packed=True),
    }
    return {name: float((other - base).norm() / base.norm()) for name, other in others.items()}


def main() -> None:
    """Measure all cases that fit, and print and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tiny model, as tests have it")
    options = parser.parse_args()
    has_gpu = torch.cuda.is_available() and not options.small
    device = "cuda" if has_gpu else "cpu"
    name = torch.cuda.get_device_name() if has_gpu else platform.machine()
    peak = next((flops for key, flops in PEAK_FLOPS.items() if key in name), 1e12)
    found: dict[str, Any] = {"device": name, "torch": torch.__version__, "peak_flops": peak, "cases": []}
    for case in CASES if has_gpu else SMALL:
        try:
            found["cases"].append(measure(case, device, turns=options.turns, peak_flops=peak))
        except torch.OutOfMemoryError as error:
            found["cases"].append({"case": asdict(case), "problem": str(error).splitlines()[0]})
        gc.collect()
        if has_gpu:
            torch.cuda.empty_cache()
        if options.output:
            options.output.write_text(json.dumps(found, indent=1))
    found["equality"] = equality(device, "0.5B" if has_gpu else "tiny")
    text = json.dumps(found, indent=1)
    if options.output:
        options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
