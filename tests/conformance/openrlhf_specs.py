"""How random specs of OpenRLHF are drawn: the parts that are no knobs, plausible texts, and what has to fit."""

import math
import random
from collections.abc import Sequence
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import Knob
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from tests.conformance.specs import Drawing, Values, draw, num_reachable, specs_in_turn

VERSIONS = trainers()["openrlhf"].versions
BOUNDS = {
    "placement.policy_nodes": (1, 4),
    "placement.critic_nodes": (1, 4),
    "placement.reference_nodes": (1, 4),
    "placement.reward_nodes": (1, 4),
    "placement.policy_gpus_per_node": (1, 8),
    "placement.critic_gpus_per_node": (1, 8),
    "placement.reference_gpus_per_node": (1, 8),
    "placement.reward_gpus_per_node": (1, 8),
    "placement.rollout_engines": (1, 32),
    "placement.rollout_tensor_parallel": (1, 8),
    "parallel.tensor_parallel_size": (1, 8),
    "parallel.sequence_parallel_size": (1, 8),
    "train.micro_batch_size": (1, 16),
    "train.score_micro_batch_size": (1, 32),
    "train.updates_per_rollout": (1, 16),
    "rollout.samples_per_prompt": (1, 32),
    "reward.clip_low": (-100, 0),
    "reward.clip_high": (0.001, 100),
}
TEXTS = {
    "checkpoint.best_metric": ("eval_default_pass1", "none"),
    "data.image_column": ("pictures", "image list"),
    "data.input_template": ("Question: {}\nAnswer: ", "- {}", "'{}' \"$x\"", "--{}", "{}"),
    "data.mixing_probabilities": ("0.7,0.3", "0.5, 0.5"),
    "wandb.project": ("sums", "it's one"),
    "wandb.run_group": ("a", "b c"),
    "wandb.entity": ("team", "someone"),
    "lora.target_modules": ("q_proj,k_proj,v_proj", "down_proj"),
    "models.chat_template": ("{{ messages[0]['content'] }}\n", "{% if a %}-{% endif %}"),
    "models.critic_path": ("Qwen/Qwen2.5-0.5B", "/srv/models/critic one"),
    "models.reference_path": ("Qwen/Qwen2.5-0.5B", "/srv/models/reference"),
    "models.value_head_prefix": ("value_head", "v"),
}
AGENT = "agent.function_path"
REWARDS: tuple[dict[str, str], ...] = (
    {"kind": "file", "location": "/srv/rewards/one two.py"},
    {"kind": "url", "location": "http://10.0.0.7:5000/get_reward,http://10.0.0.8:5000/get_reward"},
    {"kind": "model", "location": "OpenRLHF/Llama-3-8b-rm-700k"},
    {"kind": "math"},
    {"kind": "exact_match"},
    {"kind": "format"},
)
MODELS = (
    {"kind": "hub", "id": "Qwen/Qwen2.5-0.5B-Instruct"},
    {"kind": "path", "id": "/srv/models/it's mine"},
    {"kind": "bundled"},
)


def drawn(version: str, algorithm: str, rng: random.Random, wanted: Sequence[str] = ()) -> RunSpec:
    """Return a random spec that OpenRLHF takes. Raises: SpecInvalid if the repair missed something."""
    drawing = _drawing(version, algorithm, rng)
    return draw(drawing, version=version, algorithm=algorithm, rng=rng, wanted=wanted)


def specs_of(version: str, number: int) -> list[RunSpec]:
    """Return random specs of every algorithm."""
    return specs_in_turn("openrlhf", version, algorithms_at(version), number, drawn)


def reachable(knob: Knob) -> int:
    """Return how many values that are not its default a knob has to be seen with."""
    return num_reachable(knob, len(TEXTS.get(knob.id, (AGENT,))))


def algorithms_at(version: str) -> list[str]:
    """Return the algorithms of a version."""
    info = trainers()["openrlhf"]
    return [name for name in info.algorithms if info.offers(name, version)]


def _drawing(version: str, algorithm: str, rng: random.Random) -> Drawing:
    is_rl = is_in(algorithm, "rl")
    has_agent = is_rl and rng.random() < 0.1
    kinds = [reward for reward in REWARDS if algorithm != "dapo" or reward["kind"] != "model"]
    reward = {"kind": "format"} if has_agent else rng.choice(kinds)
    sections: dict[str, Any] = {
        "model": rng.choice(MODELS),
        "data": _data(algorithm, rng, can_evaluate=has_agent or reward["kind"] != "model"),
        "name": rng.choice(["", "first run", "it's #2", "größer"]),
    }

    def repair(algorithm: str, values: Values, rng: random.Random) -> None:
        _repair_numbers(algorithm, values)
        if not is_rl:
            _repair_supervised(algorithm, values, rng, data=sections["data"])
            _repair_samples(values, _whole(values, "train.batch_size"))
            return
        sections["reward"] = reward
        if has_agent:
            values[AGENT] = "/srv/agents/tools.py"
        _repair_placement(algorithm, values, rng)
        _repair_rollout(version, algorithm, values, has_reward_code=has_agent or reward["kind"] != "model")
        _repair_batches(version, algorithm, values, rng)
        _repair_samples(values, _whole(values, "rollout.prompts_per_step"))

    return Drawing(
        trainer="openrlhf",
        sections=lambda _: sections,
        texts=TEXTS,
        repair=repair,
        bounds=BOUNDS,
        skip=frozenset({AGENT}),
    )


def _data(algorithm: str, rng: random.Random, *, can_evaluate: bool) -> dict[str, Any]:
    if rng.random() < 0.15:
        return {"kind": "bundled"}
    data: dict[str, Any] = rng.choice(
        [
            {"kind": "hub", "id": "OpenRLHF/prompt-collection-v0.1"},
            {"kind": "path", "id": "/srv/data/train one.jsonl"},
            {"kind": "hub", "id": "a/b,c/d", "split": "train[:90%]"},
        ]
    )
    data = dict(data)
    if can_evaluate and rng.random() < 0.5:
        data |= rng.choice(
            [{"eval_id": "/srv/data/test.jsonl"}, {"eval_split": "test"}, {"eval_id": "a/held", "eval_split": "dev"}]
        )
    if algorithm in ("dpo", "rm"):
        data |= rng.choice([{}, {"prompt_column": "", "chosen_column": "better", "rejected_column": "worse"}])
    elif algorithm == "sft":
        data |= rng.choice([{}, {"prompt_column": "question", "response_column": "answer"}])
    else:
        data |= rng.choice([{}, {"prompt_column": "context messages", "answer_column": "label"}])
    return data


def _whole(values: Values, knob_id: str) -> int:
    return int(values.get(knob_id) or 0)


def _repair_numbers(algorithm: str, values: Values) -> None:
    """Leave out what OpenRLHF's parser takes and its engines do not."""
    if is_in(algorithm, "rl"):
        values["lora.rank"] = 0
        if values["memory.precision"] == "float16":  # vLLM is always started in bfloat16
            values["memory.precision"] = "bfloat16"
    if values["quantization.load_in_4bit"]:
        values["memory.precision"] = "bfloat16"
    if "muon" in (values.get("optimizer.kind"), values.get("optimizer.critic_kind")):
        values["memory.adam_offload"] = False
    if "algorithm.correction_low" in values:
        low, high = float(values["algorithm.correction_low"] or 0), float(values["algorithm.correction_high"] or 0)
        values["algorithm.correction_low"], values["algorithm.correction_high"] = min(low, high), max(low, high, 1.0)


def _repair_samples(values: Values, least: int) -> None:
    """Let at least one whole batch be read."""
    if values["data.max_samples"] is not None:
        values["data.max_samples"] = max(_whole(values, "data.max_samples"), least)


def _repair_supervised(algorithm: str, values: Values, rng: random.Random, *, data: dict[str, Any]) -> None:
    processes = _whole(values, "placement.policy_gpus_per_node")
    _repair_parallel(values, processes, rng)
    if _whole(values, "parallel.sequence_parallel_size") > 1:
        values["train.packing"] = True
    unit = _whole(values, "train.micro_batch_size") * max(processes // _degree(values), 1)
    values["train.batch_size"] = unit * max(_whole(values, "train.batch_size") // unit, 1)
    if algorithm == "sft" and data["kind"] != "bundled" and values["data.apply_chat_template"] and rng.random() < 0.5:
        data.pop("response_column", None)
        data |= {"messages_column": "conversation"}
        data.pop("prompt_column", None)


def _degree(values: Values) -> int:
    ring = _whole(values, "parallel.sequence_parallel_size") or 1
    return ring * (_whole(values, "parallel.tensor_parallel_size") or 1)


def _repair_parallel(values: Values, *groups_and_rng: Any) -> None:
    """Make the degrees of parallelism divide every group; tensor parallelism wants bf16 and at most ZeRO-2."""
    *groups, rng = groups_and_rng
    shared = math.gcd(*groups)
    for knob_id in ("parallel.sequence_parallel_size", "parallel.tensor_parallel_size"):
        divisors = [n for n in range(1, shared + 1) if shared % n == 0]
        if _whole(values, knob_id) not in divisors:
            values[knob_id] = rng.choice(divisors)
        shared //= _whole(values, knob_id)
    if _whole(values, "parallel.sequence_parallel_size") == 1:
        values["parallel.ring_head_stride"] = 1
    if _whole(values, "parallel.tensor_parallel_size") > 1:
        values["memory.precision"] = "bfloat16"
        if values["memory.zero_stage"] == "3":
            values["memory.zero_stage"] = "2"


def _size(values: Values, role: str) -> int:
    return _whole(values, f"placement.{role}_nodes") * _whole(values, f"placement.{role}_gpus_per_node")


def _copy_size(values: Values, source: str, target: str) -> None:
    for part in ("nodes", "gpus_per_node"):
        if f"placement.{target}_{part}" in values:
            values[f"placement.{target}_{part}"] = values[f"placement.{source}_{part}"]


def _repair_placement(algorithm: str, values: Values, rng: random.Random) -> None:
    shares_all = bool(values["placement.colocate_all"])
    if values["algorithm.kl_coefficient"] and (shares_all or values["placement.colocate_policy_reference"]):
        _copy_size(values, "policy", "reference")
    if shares_all:
        _copy_size(values, "policy", "critic")
        _copy_size(values, "policy", "reward")
    elif algorithm == "ppo" and values["placement.colocate_critic_reward"]:
        _copy_size(values, "critic", "reward")
    if shares_all and not values["async.enable"]:
        size = _size(values, "policy")
        divisors = [n for n in (1, 2, 4, 8) if size % n == 0]
        if _whole(values, "placement.rollout_tensor_parallel") not in divisors:
            values["placement.rollout_tensor_parallel"] = rng.choice(divisors)
        values["placement.rollout_engines"] = size // _whole(values, "placement.rollout_tensor_parallel")
    if values["async.enable"] or not shares_all:
        values["rollout.sleep"] = False
    trained = ["policy", "reference", "reward", *(["critic"] if algorithm == "ppo" else [])]
    _repair_parallel(values, *(_size(values, role) for role in trained), rng)


def _repair_rollout(version: str, algorithm: str, values: Values, *, has_reward_code: bool) -> None:
    if is_in(algorithm, "grouped"):
        values["rollout.samples_per_prompt"] = max(_whole(values, "rollout.samples_per_prompt"), 2)
    # A group's estimator with the filter is DAPO: that is how a command is told apart.
    filters = algorithm == "dapo" or (bool(values["algorithm.dynamic_sampling"]) and algorithm not in ("grpo", "dapo"))
    values["algorithm.dynamic_sampling"] = filters and has_reward_code
    if values["algorithm.dynamic_sampling"]:
        values["rollout.samples_per_prompt"] = max(_whole(values, "rollout.samples_per_prompt"), 2)
        low, high = sorted((float(values["algorithm.dynamic_sampling_low"] or 0), 0.5))
        values["algorithm.dynamic_sampling_low"] = low
        values["algorithm.dynamic_sampling_high"] = high + 0.25
    if values.get("data.max_images_per_prompt"):
        if algorithm == "ppo":
            values["data.max_images_per_prompt"] = 0
        else:
            values["train.packing"] = values["train.dynamic_batch"] = values["kernels.liger"] = False
            values["parallel.sequence_parallel_size"] = 1
    if values.get("algorithm.correction_gate") in ("binary_kl", "tv"):
        values["algorithm.correction_low"] = 0.0
        values["algorithm.correction_mode"] = "mask"
    if values.get("algorithm.correction") == "sequence":
        values["algorithm.correction_mode"] = "mask"
    if values.get("memory.trainer_sleep"):
        values["memory.zero_stage"], values["parallel.tensor_parallel_size"] = "3", 1
    buffer = values.get("reward.overlong_buffer_tokens")
    if buffer is not None:
        values["reward.overlong_buffer_tokens"] = min(int(buffer), _whole(values, "rollout.max_new_tokens"))


def _repair_batches(version: str, algorithm: str, values: Values, rng: random.Random) -> None:
    """Make the rollout a whole number of updates, each of them whole micro-batches on every rank."""
    degree = _degree(values)
    trained = [_size(values, role) // degree for role in (["policy", "critic"] if algorithm == "ppo" else ["policy"])]
    unit = _whole(values, "train.micro_batch_size") * math.lcm(*trained) * _whole(values, "train.updates_per_rollout")
    prompts = unit * rng.choice([1, 1, 2, 3])
    values["rollout.prompts_per_step"] = min(prompts, 65536 // unit * unit or unit)
    samples = _whole(values, "rollout.prompts_per_step") * _whole(values, "rollout.samples_per_prompt")
    groups = [
        _size(values, role) // degree for role in ("policy", "reference", "reward", "critic") if _size(values, role)
    ]
    # With dynamic batches the size is OpenRLHF's own, and still counted.
    least = max(groups) * ((8 if version == "0.8.6" else 1) if values["train.dynamic_batch"] else 1)
    while samples < least:
        values["rollout.prompts_per_step"] = _whole(values, "rollout.prompts_per_step") * 2
        samples *= 2
    if not values["train.dynamic_batch"]:
        most = samples // max(groups)
        values["train.score_micro_batch_size"] = min(_whole(values, "train.score_micro_batch_size"), most)
    generated = values.get("rollout.prompts_per_generation")
    if generated is not None and not values["async.enable"]:
        values["rollout.prompts_per_generation"] = min(int(generated), _whole(values, "rollout.prompts_per_step"))
