"""What both trainers do: models, rows and settings of each part of the benchmark, once for each side.

The rows are handed to both in the same order, so a step has the same prompts on both sides; sampled tokens differ, as
each side has random numbers of its own.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.bundled import word_problems
from jobs.engine.data.dataset import Row, load_table
from jobs.engine.data.examples import in_order
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.text import TextModel
from tests.bench.engine.random_model import TICK, make_models, ticks_for

LENGTHS = (16, 32, 48, 72, 104, 144, 192, 240)
"""Mean tokens of the responses to each of the eight prompts: their logarithms lie about evenly between 16 and 256."""
MOST_NEW_TOKENS, MOST_PROMPT_TOKENS = 256, 96
SAMPLES = 4
SFT_BATCH, SFT_LONGEST = 32, 384
DEMO_LEARNING_RATE, LEARNING_RATE, SFT_LEARNING_RATE = 3e-4, 1e-9, 3e-4
"""The demo's own; one that leaves the lengths of the responses as they are; one at which losses fall."""
MICRO_BATCH = 8
BETWEEN_STEPS = {"eval.num_prompts": 0, "checkpoint.every_steps": 0}
"""Nothing: TRL evaluates and saves nothing either."""
ROW_SEED = 5
VOWELS = '''def reward(prompt, completion, answer):
    """Return the fraction of vowels: a random model has some, and groups of responses differ in it."""
    return sum(letter in "aeiou" for letter in completion.lower()) / max(len(completion), 1)
'''
COMMON: Mapping[str, Any] = {
    "lr_scheduler_type": "constant",
    "adam_beta1": 0.9,
    "adam_beta2": 0.95,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "optim": "adamw_torch_fused",
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "dataloader_num_workers": 0,
    "disable_tqdm": True,
}
"""What TRL is told besides: the built-in trainer's optimizer, precision float32, and nothing that costs time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrlSetting:
    """A way to run TRL: how many processes, threads of each, what `config` it gets besides, and variables for vLLM."""

    name: str
    config: Mapping[str, Any]
    processes: int = 1
    env: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A workload whose files are there: the spec of the built-in trainer, and TRL's model, rows and seed."""

    spec: Mapping[str, Any]
    model: Path
    rows: Sequence[Row]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A part of the benchmark. `asked` is how many times TRL's samples per second the built-in trainer has to reach."""

    id: str
    title: str
    algorithm: str
    num_steps: int
    sequences: int
    asked: float
    prepare: Callable[[Path, int, int], Prepared]
    config: Mapping[str, Any]
    settings: Sequence[TrlSetting]
    reward: str = ""


def bundled_model() -> Path:
    """Return the folder of the demo's model."""
    return model_folder(parse_spec({}).model)


def rows_in_order(spec: RunSpec, count: int) -> list[Row]:
    """Return the rows that the built-in trainer takes first, in its order."""
    train = load_table(spec.data, inputs_dir=Path()).train
    return [train[number] for number in islice(in_order(len(train), seed=spec.int_knob("train.seed")), count)]


COLOCATED = {"layout": "colocated"}
"""The layout in which the built-in trainer is fastest on CPU; TRL, too, draws in the process that trains."""


def demo_spec(num_steps: int, seed: int) -> dict[str, Any]:
    """Return the demo's spec, without what lies between its steps."""
    knobs = {"train.num_steps": num_steps, "train.seed": seed, **BETWEEN_STEPS}
    return {"hardware": COLOCATED, "knobs": knobs}


def long_responses_spec(model: Path, data: Path, num_steps: int, seed: int) -> dict[str, Any]:
    """Return the spec of reinforcement learning with responses of many lengths."""
    return {
        "model": {"kind": "path", "id": str(model)},
        "data": {"kind": "path", "id": str(data), "eval_share": 0.0},
        "reward": {"kind": "custom", "source": VOWELS, "file_name": "vowels.py"},
        "hardware": COLOCATED,
        "knobs": {
            "train.num_steps": num_steps,
            "train.seed": seed,
            "train.micro_batch_size": MICRO_BATCH,
            "optimizer.learning_rate": LEARNING_RATE,
            "rollout.prompts_per_step": len(LENGTHS),
            "rollout.samples_per_prompt": SAMPLES,
            "rollout.max_prompt_tokens": MOST_PROMPT_TOKENS,
            "rollout.max_new_tokens": MOST_NEW_TOKENS,
            **BETWEEN_STEPS,
        },
    }


def fine_tuning_spec(model: Path, data: Path, num_steps: int, seed: int) -> dict[str, Any]:
    """Return the spec of fine-tuning on answers of many lengths."""
    return {
        "algorithm": "sft",
        "model": {"kind": "path", "id": str(model)},
        "data": {"kind": "path", "id": str(data), "eval_share": 0.0},
        "knobs": {
            "train.num_steps": num_steps,
            "train.seed": seed,
            "train.batch_size": SFT_BATCH,
            "train.micro_batch_size": MICRO_BATCH,
            "train.max_sequence_tokens": SFT_LONGEST,
            "optimizer.learning_rate": SFT_LEARNING_RATE,
            "optimizer.schedule": "constant",
            "optimizer.warmup_steps": 0,
            **BETWEEN_STEPS,
        },
    }


def prepare_demo(folder: Path, num_steps: int, seed: int) -> Prepared:
    """The bundled model and rows; the model also in float32, which TRL's vLLM takes from its files."""
    model = folder / "tiny-float32"
    if not (model / "config.json").exists():
        _save_in_float32(bundled_model(), model)
    spec = demo_spec(num_steps, seed)
    prompts = num_steps * parse_spec(spec).int_knob("rollout.prompts_per_step")
    rows = rows_in_order(parse_spec(spec), prompts)
    return Prepared(spec=spec, model=model, rows=rows, seed=seed)


def prepare_long_responses(folder: Path, num_steps: int, seed: int) -> Prepared:
    """Eight prompts, all of them in each step, so that the responses of every step have the same lengths."""
    model = make_models(folder / "random-34m", text_from=bundled_model())["ending"]
    data = folder / "long-responses.jsonl"
    _write_rows(data, prompts_with_ticks(TextModel(model)))
    spec = long_responses_spec(model, data, num_steps, seed)
    rows = rows_in_order(parse_spec(spec), num_steps * len(LENGTHS))
    return Prepared(spec=spec, model=model, rows=rows, seed=seed)


def prepare_fine_tuning(folder: Path, num_steps: int, seed: int) -> Prepared:
    """Conversations whose answers have 16 to 256 tokens, the logarithm of the length drawn evenly."""
    model = make_models(folder / "random-34m", text_from=bundled_model())["plain"]
    data = folder / "answers.jsonl"
    _write_rows(data, answers_of_many_lengths(TextModel(model), num_steps * SFT_BATCH))
    spec = fine_tuning_spec(model, data, num_steps, seed)
    rows = rows_in_order(parse_spec(spec), num_steps * SFT_BATCH)
    return Prepared(spec=spec, model=model, rows=rows, seed=seed)


def prompts_with_ticks(text: TextModel) -> list[dict[str, str]]:
    """Return a prompt for each of the lengths; its ticks say how long its responses will be."""
    rows = []
    for problem, tokens in zip(word_problems.rows(len(LENGTHS), seed=ROW_SEED), LENGTHS, strict=True):
        (asked,) = text.tokenize([text.prompt([{"role": "user", "content": problem["prompt"]}])])
        others = len(asked.tokens)
        ticks = ticks_for(tokens, other_prompt_tokens=others, most=MOST_NEW_TOKENS)
        rows.append({"prompt": problem["prompt"] + TICK * ticks, "answer": problem["answer"]})
    return rows


def answers_of_many_lengths(text: TextModel, count: int) -> list[dict[str, str]]:
    """Return `count` rows with worked solutions one after the other, until each has its length in tokens."""
    rng = random.Random(ROW_SEED)
    problems = word_problems.rows(seed=ROW_SEED)
    rows = []
    for _ in range(count):
        wanted = round(16 * 16 ** rng.random())
        tokens: list[int] = []
        while len(tokens) < wanted:
            tokens += text.encode(f"{rng.choice(problems)['response']} ")
        question = rng.choice(problems)["prompt"]
        rows.append({"prompt": question, "response": text.decode(tokens[:wanted]).strip()})
    return rows


def _write_rows(file: Path, rows: Sequence[Mapping[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _save_in_float32(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoTokenizer.from_pretrained(source).save_pretrained(target)
    AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).save_pretrained(target)


_VLLM_ENV: Mapping[str, str] = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # Without compiling, as the built-in trainer runs it on CPU: it takes longer than it saves.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_USE_AOT_COMPILE": "0",
}


def _grpo(**config: Any) -> dict[str, Any]:
    own = {"beta": 0.002, "temperature": 1.0, "num_iterations": 1, "loss_type": "dapo", "epsilon": 0.2}
    return {**COMMON, **own, "scale_rewards": "group", "shuffle_dataset": False, **config}


def _grpo_settings(sequences: int, context: int) -> tuple[TrlSetting, ...]:
    whole = {"per_device_train_batch_size": sequences, "gradient_accumulation_steps": 1}
    vllm = {"use_vllm": True, "vllm_mode": "colocate", "vllm_max_model_length": context}
    return (
        TrlSetting(name="generate", config=whole),
        TrlSetting(
            name="generate, micro-batches",
            config={"per_device_train_batch_size": sequences // 4, "gradient_accumulation_steps": 4},
        ),
        TrlSetting(
            name="generate, two processes", config=whole | {"per_device_train_batch_size": sequences // 2}, processes=2
        ),
        TrlSetting(name="vLLM", config=whole | vllm, env=_VLLM_ENV),
    )


_MICRO = {"per_device_train_batch_size": MICRO_BATCH, "gradient_accumulation_steps": SFT_BATCH // MICRO_BATCH}
_BY_LENGTH = {"train_sampling_strategy": "batch_rebalance"}
"""Sorts and shares out the rows of a step; each step keeps its rows."""
_SFT_SETTINGS = (
    TrlSetting(name="one batch", config={"per_device_train_batch_size": SFT_BATCH, "gradient_accumulation_steps": 1}),
    TrlSetting(name="micro-batches", config=_MICRO),
    TrlSetting(name="micro-batches by length", config=_MICRO | _BY_LENGTH),
    TrlSetting(
        name="micro-batches by length, two processes",
        config=_MICRO | _BY_LENGTH | {"gradient_accumulation_steps": SFT_BATCH // MICRO_BATCH // 2},
        processes=2,
    ),
    TrlSetting(name="without padding", config=_MICRO | {"padding_free": True, "max_length": None}),
)

WORKLOADS: Mapping[str, Workload] = {
    each.id: each
    for each in (
        Workload(
            id="grpo-demo",
            title="GRPO, the demo's work: 657,024 parameters, 128 responses of at most 32 tokens a step",
            algorithm="grpo",
            num_steps=20,
            sequences=128,
            asked=1.2,
            prepare=prepare_demo,
            config=_grpo(num_generations=8, max_completion_length=32, learning_rate=DEMO_LEARNING_RATE),
            settings=_grpo_settings(128, 128),
        ),
        Workload(
            id="grpo-30m",
            title="GRPO, 34 million parameters, 32 responses of 16 to 256 tokens a step",
            algorithm="grpo",
            num_steps=5,
            sequences=len(LENGTHS) * SAMPLES,
            asked=1.5,
            prepare=prepare_long_responses,
            config=_grpo(num_generations=SAMPLES, max_completion_length=MOST_NEW_TOKENS, learning_rate=LEARNING_RATE),
            settings=_grpo_settings(len(LENGTHS) * SAMPLES, MOST_PROMPT_TOKENS + MOST_NEW_TOKENS),
            reward=VOWELS,
        ),
        Workload(
            id="sft-30m",
            title="SFT, 34 million parameters, 32 conversations with answers of 16 to 256 tokens a step",
            algorithm="sft",
            num_steps=6,
            sequences=SFT_BATCH,
            asked=1.2,
            prepare=prepare_fine_tuning,
            config={
                **COMMON,
                "learning_rate": SFT_LEARNING_RATE,
                "max_length": SFT_LONGEST,
                "train_sampling_strategy": "sequential",
            },
            settings=_SFT_SETTINGS,
        ),
    )
}
