"""TRL's options: all that a version's scripts have, and those of them that are no knobs.

`known_options/trl-<version>.json` has them by script with TRL's defaults, made from the wheel's own parsers by
`tests/conformance/write_trl_options.py`. A part of them are those of Transformers' TrainingArguments.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jobs.adapters.adapter import OptionName
from jobs.catalog.knob import knob_flags

TRAINER = "trl"
SCRIPTS: Mapping[str, str] = {
    "sft": "sft",
    "dpo": "dpo",
    "kto": "kto",
    "rm": "reward",
    "grpo": "grpo",
    "rloo": "rloo",
}
"""The script that trains each algorithm, as TRL calls it."""

PROCESSES = "placement.policy_gpus_per_node"
PER_NODE = ("--nproc-per-node", "--nproc_per_node", "--num_processes")
"""How torchrun and `accelerate launch` are told the number of processes."""

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "--model_name_or_path": ("model.id",),
    "--dataset_name": ("data.id",),
    "--datasets": ("data.id",),
    "--dataset_train_split": ("data.split",),
    "--dataset_test_split": ("data.eval_split",),
    "--eval_strategy": ("data.eval_split", "eval.every_steps"),
    "--reward_funcs": ("reward.kind", "reward.location"),
    "--reward_model_name_or_path": ("reward.kind", "reward.location"),
    "--run_name": ("name",),
    "--use_peft": ("lora.rank",),
    "--save_strategy": ("checkpoint.every_steps",),
    "--steps_per_generation": ("rollout.prompts_per_step",),
}
"""Options that sections of the spec write, or that say a knob's value beside its own flag."""

OURS: Mapping[str, str] = {
    "--output_dir": "Pitwall keeps checkpoints and the trained model below the run directory.",
    "--use_cpu": "Pitwall chooses the device by what the cluster has.",
    "--per_device_eval_batch_size": "Pitwall raises it where the answers to a held-out prompt ask for more.",
    "--enable_jit_checkpoint": "Pitwall switches it on, so that a stop leaves a checkpoint.",
    "--num_completions_to_print": "Pitwall reads all responses from TRL's files; one of them is printed to the log.",
    "--lora_task_type": "Pitwall says it by what is trained: SEQ_CLS for a reward model.",
    "--disable_tqdm": "Pitwall reads the number of steps off the progress bar.",
    "--config": "The file of the command is not at hand here. Paste the YAML text of it instead.",
}
"""Options that Pitwall sets itself, with what is told to whoever sets them otherwise."""

_HUB = "Pitwall keeps the trained model below the run directory and pushes it nowhere."
_LAUNCHER = "The launcher gives every process its own."
_SERVER = "Pitwall starts no vLLM server of its own; rollouts are generated on the devices that train."
_REASONS: Mapping[str, str] = {
    "--push_to_hub": _HUB,
    "--hub_": _HUB,
    "--local_rank": _LAUNCHER,
    "--vllm_server_": _SERVER,
    "--vllm_mode": _SERVER,
    "--vllm_group_port": _SERVER,
    "--do_train": "The script trains in any case.",
    "--do_eval": "The script evaluates where a strategy of evaluation is set.",
    "--do_predict": "The script predicts nothing.",
}
"""Options that are nobody's, by the beginning of the name, and why."""

_NO_KNOB = "There is no knob for it; TRL keeps its default."


@cache
def defaults_of(algorithm: str, version: str) -> Mapping[str, Any]:
    """Return option -> TRL's default, of the script of an algorithm in a version.

    Raises: FileNotFoundError for a version whose options nobody has written down.
    """
    text = (files("jobs.adapters.trl") / "known_options" / f"trl-{version}.json").read_text(encoding="utf-8")
    tables: dict[str, dict[str, Any]] = json.loads(text)
    return tables[SCRIPTS[algorithm]]


@cache
def knob_options(algorithm: str, version: str) -> frozenset[str]:
    """Return the options of a script that are knobs; those of the launcher are not the script's."""
    flags = (flag for _, flag in knob_flags(algorithm, TRAINER, version).values())
    return frozenset(name for flag in flags if flag.form != "launcher" for name in flag.names)


def why_not(name: str) -> str:
    """Return why an option that TRL has is no knob here."""
    return next((why for start, why in _REASONS.items() if name.startswith(start)), _NO_KNOB)


def option_names(*, version: str) -> Sequence[OptionName]:
    """Return every option of a version, and of its launchers, that is no knob's flag."""
    return tuple(dict.fromkeys(_option_names(version)))


def _option_names(version: str) -> Iterator[OptionName]:
    for name, spec_fields in SECTIONS.items():
        yield OptionName(name=name, spec_fields=spec_fields)
    for name, why in OURS.items():
        yield OptionName(name=name, why=why)
    for name in PER_NODE[1:]:
        yield OptionName(name=name, spec_fields=(PROCESSES,))
    yield OptionName(name="--accelerate_config", spec_fields=("memory.zero_stage",))
    for algorithm in SCRIPTS:
        for name in defaults_of(algorithm, version):
            if name not in SECTIONS and name not in OURS and name not in knob_options(algorithm, version):
                yield OptionName(name=name, why=why_not(name))
