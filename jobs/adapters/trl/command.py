"""A spec as the arguments of one of TRL's scripts: model and data, the reward, then every knob that is not as TRL has
it anyway.

Sources: TRL scripts/*.py (options, how data and rewards are loaded), trainer/*_config.py, and
Transformers' TrainingArguments, of the versions in trainer.toml.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from jobs.adapters.command_line.options import Argument, knob_arguments
from jobs.adapters.command_line.services import PROJECT, services_of
from jobs.adapters.inputs import MATERIALIZED, eval_path, model_path
from jobs.adapters.launching import Launch
from jobs.adapters.logs.carried import carried_environment, carried_files
from jobs.adapters.logs.tensorboard import FOLDER
from jobs.adapters.scoring import source_of
from jobs.adapters.trl.options import PROCESSES, SCRIPTS
from jobs.adapters.trl.timers import ON_TIMERS
from jobs.adapters.trl.units import CONVERSIONS, NEVER, zero_file
from jobs.catalog.algorithm import is_in
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import DataSource, RunSpec
from jobs.catalog.value import value_text

OUTPUT = "model/final"
DATA_FOLDER = "inputs"
CONFIG = re.compile(r"(?:.*/)?inputs/(data|loggers)((?:-\w+)*)\.yaml")
"""A configuration holds what no option can say: data that are files (the option takes folders and hub ids alone), and
several loggers. Its name tells a reader which."""

BOARD = "tensorboard"
"""The logger whose files Pitwall reads, in every command."""

_PROJECTS = {"wandb": "WANDB_PROJECT", "mlflow": "MLFLOW_EXPERIMENT_NAME", "swanlab": "SWANLAB_PROJECT"}
BUILDERS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow"}
TEST_SPLIT = "test"
EVAL_BATCH = 8  # TRL's own, of a process
_EVAL_SAMPLES = "eval.samples_per_prompt"
_EVAL_EVERY = "eval.every_steps"
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nnodes=1")
_ENV = {
    "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
    "PYTHONFAULTHANDLER": "1",
}
_ALONE = {  # one process on CPU, which is its own launcher: with a group of one it can be recorded while it trains
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",  # a free one
}
_COLUMNS = {
    "data.prompt_column": "prompt",
    "data.response_column": "completion",
    "data.messages_column": "messages",
    "data.chosen_column": "chosen",
    "data.rejected_column": "rejected",
    "data.label_column": "label",
}
"""The columns that TRL reads; no option names others."""

_REWARD_FUNCTION = '''

def _text(part):
    """A prompt or completion as text: the last message of a conversation."""
    return part if isinstance(part, str) else str(part[-1]["content"]) if part else ""


def {name}(prompts, completions, **columns):
    """What TRL calls for a batch of completions."""
    answers = columns.get({column!r}) or [""] * len(completions)
    if "log_extra" in columns:
        columns["log_extra"]("expected", ["" if answer is None else str(answer) for answer in answers])
    return [
        float(reward(_text(prompt), _text(completion), "" if answer is None else str(answer)))
        for prompt, completion, answer in zip(prompts, completions, answers, strict=True)
    ]
'''


def command(*, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
    """Return the command of the algorithm's script, whose paths are relative to the run directory.

    torchrun starts a process for every device of one node; on CPU one process is its own launcher.

    Raises: ValueError with a sentence for data whose columns, or held-out part, TRL cannot be told, or a reward's URL.
    """
    wanted = spec.hardware.device if spec.hardware.device != "auto" else device
    arguments = list(arguments_of(spec))
    if wanted == "cpu":
        arguments += ["--use_cpu", "true"]
    processes = spec.int_knob(PROCESSES)
    launcher: tuple[str, ...] = ()
    if wanted != "cpu" or processes > 1:
        launcher = (*_TORCHRUN, "--nproc-per-node", str(processes))
    environment = carried_environment(run_dir) if is_in(spec.algorithm, "rl") else {}
    return Launch(
        argv=(python, *launcher, "-m", f"trl.scripts.{SCRIPTS[spec.algorithm]}", *arguments),
        env=_ENV
        | ({} if launcher else _ALONE)
        | {"TENSORBOARD_LOGGING_DIR": str(run_dir / FOLDER)}
        | _project(spec)
        | environment,
        files=_files(spec),
    )


def arguments_of(spec: RunSpec) -> Iterator[str]:
    """Yield the script's arguments. Raises: ValueError as `command`."""
    yield from ("--model_name_or_path", model_path(spec))
    yield from _data(spec)
    if is_in(spec.algorithm, "rl"):
        yield from _reward(spec)
    if spec.name:
        yield from _with_value("--run_name", spec.name)
    yield from ("--output_dir", OUTPUT, "--enable_jit_checkpoint", "true")
    if config := _config_name(spec):
        yield from ("--config", config)
    if not _services(spec):
        yield from ("--report_to", BOARD)
    if spec.int_knob("lora.rank"):
        yield from ("--use_peft", "true")
        if is_in(spec.algorithm, "scalar"):  # else PEFT leaves the new head as it was drawn
            yield from ("--lora_task_type", "SEQ_CLS")
    for argument in knob_arguments(spec, CONVERSIONS):
        yield from _written(argument)
    if spec.values().get("logging.dump_rollouts"):
        yield from ("--num_completions_to_print", "1")  # of the table in the log; the files have all of them


def _services(spec: RunSpec) -> list[str]:
    """Return the services beside the files that Pitwall reads. Raises: ValueError for what is no name of one."""
    services = [name for name in services_of(spec) if name != BOARD]
    if odd := next((name for name in services if not re.fullmatch(r"\w+", name)), ""):
        raise ValueError(Sentence("TRL has no logger {name}. Leave it out.", name=repr(odd)))
    return services


def _config_name(spec: RunSpec) -> str:
    """Return the path of the configuration below the run directory; "" where options say everything."""
    services, has_data = _services(spec), bool(builder_of(spec.data))
    name = "-".join(("data" if has_data else "loggers", *services))
    return f"inputs/{name}.yaml" if has_data or services else ""


def _project(spec: RunSpec) -> dict[str, str]:
    """Return the variables by which services learn the project; trackio alone reads TRL's option."""
    project = spec.values().get(PROJECT)
    return {_PROJECTS[name]: str(project) for name in services_of(spec) if project and name in _PROJECTS}


def reward_name(spec: RunSpec) -> str:
    """Return the import path of the function that scores: TRL looks for modules in its working directory."""
    return f"inputs.reward_{spec.reward.kind}.{spec.reward.kind}_reward"


def reward_functions(spec: RunSpec) -> tuple[str, ...]:
    """Return what TRL calls the functions, or the model, that score: the last part of the path that names each."""
    if spec.reward.kind == "model":
        return (spec.reward.location.rstrip("/").rpartition("/")[2],)
    path = spec.reward.location if spec.reward.kind == "file" else reward_name(spec)
    return (path.rpartition(".")[2],)


def builder_of(data: DataSource) -> str:
    """Return what loads a file of data, "" for a folder or a hub id."""
    if data.kind != "path":
        return ""
    return next((builder for suffix, builder in BUILDERS.items() if data.id.lower().endswith(suffix)), "")


def _data(spec: RunSpec) -> Iterator[str]:
    data = spec.data
    if data.kind in MATERIALIZED:
        yield from ("--dataset_name", DATA_FOLDER)  # inputs/train and inputs/eval are its splits train and test
        yield from _held_out(spec, TEST_SPLIT if eval_path(spec) else "")
        return
    _check_columns(spec)
    if data.eval_id not in ("", data.id):
        raise ValueError(Sentence("TRL evaluates on a split of the training data. Name no other held-out data."))
    if builder_of(data):
        if data.eval_split:
            text = "TRL reads one split of a data file. Give a folder or a hub id that has the held-out split too."
            raise ValueError(Sentence(text))
        return
    yield from _with_value("--dataset_name", data.id)
    if data.split != "train":
        yield from _with_value("--dataset_train_split", data.split)
    yield from _held_out(spec, data.eval_split)


def _held_out(spec: RunSpec, split: str) -> Iterator[str]:
    if not split or not spec.int_knob(_EVAL_EVERY):
        return
    yield from ("--eval_strategy", "steps")
    if split != TEST_SPLIT:
        yield from _with_value("--dataset_test_split", split)
    if (size := eval_batch(spec)) != EVAL_BATCH:
        yield from ("--per_device_eval_batch_size", str(size))


def eval_batch(spec: RunSpec) -> int:
    """Return the held-out samples of a process at once: whole groups of answers, on however many processes."""
    if _EVAL_SAMPLES not in spec.knobs:
        return EVAL_BATCH
    samples = spec.int_knob(_EVAL_SAMPLES)
    return EVAL_BATCH if EVAL_BATCH % samples == 0 else samples


def _check_columns(spec: RunSpec) -> None:
    """Refuse data whose columns are called otherwise than TRL reads them."""
    data = spec.data
    used: tuple[str, ...]
    if is_in(spec.algorithm, "answers"):
        used = ("messages_column",) if data.messages_column else ("prompt_column", "response_column")
    elif is_in(spec.algorithm, "labeled") and data.label_column:
        used = ("prompt_column", "response_column", "label_column")
    elif is_in(spec.algorithm, "pairs") or is_in(spec.algorithm, "labeled"):
        used = ("chosen_column", "rejected_column")
    else:
        used = ("prompt_column",)
    for name in used:
        column, theirs = getattr(data, name), _COLUMNS[f"data.{name}"]
        if column != theirs:
            text = "TRL reads the column {theirs}, and no option says {column}. Rename it in the data."
            raise ValueError(Sentence(text, theirs=theirs, column=repr(column)))


def _reward(spec: RunSpec) -> Iterator[str]:
    if spec.reward.kind == "url":
        raise ValueError(Sentence("TRL asks no URL for a reward. Choose another kind."))
    if spec.reward.kind == "model":
        yield from _with_value("--reward_model_name_or_path", spec.reward.location)
    elif spec.reward.kind == "file":
        if spec.reward.location.endswith(".py"):
            text = "TRL imports a reward by its dotted name, as my_package.rewards.score. Give that instead of a path."
            raise ValueError(Sentence(text))
        yield from _with_value("--reward_funcs", spec.reward.location)
    else:
        yield from ("--reward_funcs", reward_name(spec))


def _files(spec: RunSpec) -> dict[str, str]:
    """Return the files that the command names, by their path below the run directory."""
    files = carried_files(ON_TIMERS) if is_in(spec.algorithm, "rl") else {}
    if is_in(spec.algorithm, "rl") and spec.reward.kind not in ("file", "model"):
        module, _, name = reward_name(spec).rpartition(".")
        function = _REWARD_FUNCTION.format(name=name, column=_answer_column(spec))
        files[f"{module.replace('.', '/')}.py"] = source_of(spec.reward) + function
    stage = str(spec.knob("memory.zero_stage"))
    if stage != "0":
        files[zero_file(stage)] = json.dumps(_zero(int(stage)), indent=1) + "\n"
    config: dict[str, object] = {}
    if builder := builder_of(spec.data):
        config["datasets"] = [{"path": builder, "data_files": spec.data.id, "split": spec.data.split}]
    if services := _services(spec):
        config["report_to"] = [BOARD, *services]
    if config:  # JSON is YAML, and needs no thought about what a text may hold
        files[_config_name(spec)] = json.dumps(config, indent=1) + "\n"
    return files


def _answer_column(spec: RunSpec) -> str:
    return "answer" if spec.data.kind in MATERIALIZED else spec.data.answer_column


def _zero(stage: int) -> dict[str, object]:
    """Return DeepSpeed's configuration of a ZeRO stage; what is "auto" Transformers fills in from TRL's options."""
    optimization: dict[str, object] = {"stage": stage}
    if stage == 3:
        optimization["stage3_gather_16bit_weights_on_model_save"] = True
    auto = ("gradient_accumulation_steps", "gradient_clipping", "train_batch_size", "train_micro_batch_size_per_gpu")
    return {
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": optimization,
        "zero_allow_untested_optimizer": True,
        **dict.fromkeys(auto, "auto"),
    }


def _written(argument: Argument) -> Iterator[str]:
    name, value = argument.name, argument.values[0]
    if argument.form == "launcher":
        return
    if argument.form == "mixed_precision":
        yield from _precision(name, str(value))
    elif argument.form == "words":
        yield from (name, *(part.strip() for part in str(value).split(",") if part.strip()))
    elif value == NEVER and name == "--save_steps":
        yield from ("--save_strategy", NEVER)
    elif value != NEVER:
        yield from _with_value(name, value_text(value))


def _precision(name: str, precision: str) -> Iterator[str]:
    if name == "--bf16" and precision == "float32":
        yield from (name, "false")
    elif name == "--fp16" and precision == "float16":
        yield from (name, "true")


def _with_value(name: str, value: str) -> tuple[str, ...]:
    """Return an option with its value; with "=" where argparse would take the value for another option."""
    return (f"{name}={value}",) if value.startswith("-") else (name, value)
