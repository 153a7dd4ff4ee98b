"""A spec as the arguments of OpenRLHF's command line: model and data, the reward, the algorithm, folders, then every
knob that differs from OpenRLHF's own default.

Sources: OpenRLHF cli/train_*.py (options), utils/agent.py and utils/remote_rm_utils.py (reward functions),
datasets/ (columns), of the versions in trainer.toml.
"""

from collections.abc import Iterator
from pathlib import Path

from jobs.adapters.command_line.options import Argument, Conversions, knob_arguments
from jobs.adapters.inputs import MATERIALIZED, eval_path, model_path, train_path
from jobs.adapters.launching import Launch
from jobs.adapters.logs.carried import ON_TENSORBOARD, carried_environment, carried_files
from jobs.adapters.openrlhf.options import RL, option, program_of
from jobs.adapters.openrlhf.units import (
    CORRECTION_TYPE,
    LAUNCHER,
    OFF_IS_MINUS_ONE,
    SAMPLES_PER_UPDATE,
    TOTAL_LENGTH,
    WANDB_KEY,
    listed,
    plain_number,
)
from jobs.adapters.scoring import source_of
from jobs.catalog.algorithm import is_in
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec

CONVERSIONS: Conversions = {
    "samples_per_update": SAMPLES_PER_UPDATE,
    "total_length": TOTAL_LENGTH,
    "off_is_minus_one": OFF_IS_MINUS_ONE,
    "launcher": LAUNCHER,
    "correction_type": CORRECTION_TYPE,
    "wandb_key": WANDB_KEY,
}
CORRECTION_SWITCHES = ("--algo.advantage.is_correction_enable", "--enable_vllm_is_correction")
_ALWAYS = ("estimator", "eval_split")
_ENV = {
    "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
    "PYTHONFAULTHANDLER": "1",
}
_ON_CPU = {  # one process, which is its own launcher
    "DS_ACCELERATOR": "cpu",
    "RANK": "0",
    "LOCAL_RANK": "-1",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",  # a free one
}
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nnodes=1")
AGENT = "agent.function_path"
UNNAMED = "run"
FOLDERS = {"output": "model/final", "checkpoints": "checkpoints", "tensorboard": "tb"}
"""Where OpenRLHF writes, below the run directory."""

ESTIMATORS = {
    "ppo": "gae",
    "grpo": "group_norm",
    "dapo": "group_norm",
    "gspo": "group_norm",
    "dr_grpo": "dr_grpo",
    "reinforce_pp": "reinforce",
    "reinforce_pp_baseline": "reinforce_baseline",
    "rloo": "rloo",
}
_REWARD_FUNCTION = '''

import re as _re

import torch as _torch

_SPECIAL = _re.compile(r"(?:<\\|[^<>|]*\\|>|</?s>|<(?:bos|eos|pad|unk|end_of_turn)>|\\[PAD\\]|\\s)+$")


def _completion(query, prompt):
    """The query is what the policy read and wrote, special tokens and all; the prompt may have lost its beginning."""
    _, found, rest = query.partition(prompt)
    if not found:
        tail = prompt[-200:]
        _, found, rest = query.rpartition(tail)
    return _SPECIAL.sub("", rest if found else query)


def reward_func(queries, prompts, labels, **given):
    """What OpenRLHF calls for a batch of completions."""
    scores = _torch.tensor(
        [
            float(reward(prompt, _completion(query, prompt), "" if label is None else str(label)))
            for query, prompt, label in zip(queries, prompts, labels, strict=True)
        ]
    )
    return {"rewards": scores, "scores": scores, "extra_logs": {}}
'''


def command(*, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
    """Return the command of the algorithm's program: options alone, no config file is written.

    Reinforcement learning joins the Ray cluster that the environment names (RAY_ADDRESS). The others are started by
    torchrun on one node; on CPU as one plain process. DeepSpeed's own launcher, given a number of GPUs, passes over
    those that Ray has reserved (CUDA_VISIBLE_DEVICES) and takes the node's first ones. NCCL_CUMEM_ENABLE is left alone:
    OpenRLHF sets it where the installed vLLM is old enough to want it, and breaks where it is set for a newer one.
    """
    program = program_of(spec.algorithm)
    arguments, launcher = arguments_of(spec, run_dir)
    module = ("-m", f"openrlhf.cli.{program}")
    if program == RL:
        env = _ENV | {"RAY_DEDUP_LOGS": "0"}
        return Launch(argv=(python, *module, *arguments), env=env, files=files_of(spec))
    wanted = spec.hardware.device if spec.hardware.device != "auto" else device
    env = _ENV | carried_environment(run_dir)
    if wanted == "cpu":
        return Launch(argv=(python, *module, *arguments), env=env | _ON_CPU, files=carried_files(ON_TENSORBOARD))
    return Launch(
        argv=(python, *_TORCHRUN, *launcher, *module, *arguments), env=env, files=carried_files(ON_TENSORBOARD)
    )


def reward_file(kind: str) -> str:
    """Return where the reward's Python file lies below the run directory; its name tells a reader which it is."""
    return f"inputs/reward_{kind}.py"


def files_of(spec: RunSpec) -> dict[str, str]:
    """Return the files that the command names: the reward, in the form that OpenRLHF loads."""
    if program_of(spec.algorithm) != RL or spec.reward.kind in ("file", "url", "model") or has_agent(spec):
        return {}
    source = source_of(spec.reward)
    return {reward_file(spec.reward.kind): source if "def reward_func" in source else source + _REWARD_FUNCTION}


def has_agent(spec: RunSpec) -> bool:
    """Return True if an agent of the user's gives the rewards itself."""
    return AGENT in spec.knobs and bool(spec.knob(AGENT))


def arguments_of(spec: RunSpec, run_dir: Path) -> tuple[list[str], list[str]]:
    """Return the trainer's arguments, and those of its launcher."""
    arguments: list[str] = []
    for field, value in _sections(spec, run_dir):
        declared = option(field, program_of(spec.algorithm))
        if declared is not None and (value != declared.default or field in _ALWAYS):
            arguments += _with_value(declared.name(spec.trainer.version), [value])
    launcher: list[str] = []
    for argument in knob_arguments(spec, CONVERSIONS):
        if argument.form == "launcher":
            launcher += [argument.name, plain_number(argument.values[0])]
        else:
            arguments += _written(argument)
    return arguments, launcher


def _sections(spec: RunSpec, run_dir: Path) -> Iterator[tuple[str, str]]:
    """Yield what the sections of the spec, and the run directory, say: (field of an option, its value)."""
    yield "model", _placed(model_path(spec), run_dir) if spec.model.kind == "bundled" else spec.model.id
    is_materialized = spec.data.kind in MATERIALIZED
    yield "data", _placed(train_path(spec), run_dir) if is_materialized else spec.data.id
    yield "split", "train" if is_materialized else spec.data.split
    yield from _columns(spec)
    yield from _held_out(spec, run_dir)
    if program_of(spec.algorithm) == RL:
        yield from _reward(spec, run_dir)
        yield "estimator", ESTIMATORS[spec.algorithm]
        yield "policy_loss", "gspo" if spec.algorithm == "gspo" else "ppo"
    for field, folder in FOLDERS.items():
        yield field, str(run_dir / folder)
    yield "run_name", spec.name.replace("/", "-") or UNNAMED  # it names a folder too


def _columns(spec: RunSpec) -> Iterator[tuple[str, str]]:
    data = spec.data
    if is_in(spec.algorithm, "answers") and data.messages_column:
        yield "prompt", data.messages_column
        return
    columns = {"prompt": data.prompt_column, "answer": data.answer_column, "response": data.response_column}
    columns |= {"chosen": data.chosen_column, "rejected": data.rejected_column}
    for field, column in columns.items():
        declared = option(field, program_of(spec.algorithm))
        if declared is not None and (column or not declared.default):
            yield field, column


def _held_out(spec: RunSpec, run_dir: Path) -> Iterator[tuple[str, str]]:
    """Yield what is evaluated on; for RL that needs a reward which is no model, so there is none beside one."""
    if program_of(spec.algorithm) == RL and spec.reward.kind == "model" and not has_agent(spec):
        return
    if spec.data.kind in MATERIALIZED:
        if path := eval_path(spec):
            yield "eval", _placed(path, run_dir)
            yield "eval_split", "train"  # a file of its own, which has this one split
    elif path := spec.data.eval_id or (spec.data.id if spec.data.eval_split else ""):
        yield "eval", path
        if spec.data.eval_split:
            yield "eval_split", spec.data.eval_split


def _reward(spec: RunSpec, run_dir: Path) -> Iterator[tuple[str, str]]:
    if has_agent(spec):
        return
    if spec.reward.kind == "model":
        yield "reward_model", spec.reward.location
    elif spec.reward.kind in ("file", "url"):
        yield "reward_url", spec.reward.location
    else:
        yield "reward_url", str(run_dir / reward_file(spec.reward.kind))


def _placed(path: str, run_dir: Path) -> str:
    """Return a path below the run directory as every process finds it: Ray's actors have other working directories."""
    return str(run_dir / path)


def _written(argument: Argument) -> list[str]:
    if argument.form in ("switch", "negated") or argument.name in CORRECTION_SWITCHES:
        return [argument.name] if argument.values[0] else []
    if argument.form == "words":
        return _with_value(argument.name, list(listed(argument.values[0])))
    return _with_value(argument.name, [plain_number(value) for value in argument.values])


def _with_value(name: str, values: list[str]) -> list[str]:
    """Return an option with its values; with "=" where argparse would take the value for another option."""
    if len(values) == 1 and values[0].startswith("-") and not _is_number(values[0]):
        return [f"{name}={values[0]}"]
    if other := next((value for value in values if value.startswith("-") and not _is_number(value)), ""):
        text = "OpenRLHF would take {value} among the values of {name} for an option. Leave it out."
        raise ValueError(Sentence(text, value=repr(other), name=name))
    return [name, *values]


def _is_number(text: str) -> bool:
    return text[1:].replace(".", "", 1).isdecimal()
