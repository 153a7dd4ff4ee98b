"""A spec as verl's Hydra overrides, in the order in which they are written: what is always the same, model and data,
the reward, the algorithm, then every knob that differs from verl's own default.

Sources: verl 0.9.1 trainer/config (keys), utils/config.py and workers/config (what must be set), trainer/ppo.
"""

from collections.abc import Iterator
from pathlib import Path

from jobs.adapters.command_line.hydra import Plain, write
from jobs.adapters.command_line.options import Argument, knob_arguments
from jobs.adapters.command_line.services import PROJECT as PROJECT_KNOB
from jobs.adapters.command_line.services import services_of
from jobs.adapters.inputs import MATERIALIZED, eval_path, model_path, train_path
from jobs.adapters.verl.keys import has_key
from jobs.adapters.verl.units import VERL_CONVERSIONS, options_of
from jobs.catalog.algorithm import is_in
from jobs.catalog.flag import Flag
from jobs.catalog.knob import Knob, is_live, knob_flags
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec, default_of
from jobs.catalog.trainer import as_version

Setting = tuple[str, Plain]

METRICS = "log/verl.jsonl"
"""Where verl's file logger writes, below the run directory. verl opens it anew at every start: one per attempt."""

REWARD_FILE = "inputs/reward.py"
OWN_SCORES = "pkg://verl.utils.reward_score"
"""verl's own scoring by the column data_source, as a reward of the kind `file`: what a command without one means."""

PROJECT = "pitwall"
MARK = "hydra.job.name"
"""Which algorithm a command of ours has, where a person has named the project; Hydra alone reads it."""

SINKS = ("console", "file")
"""verl's loggers that Pitwall reads, in every command."""

UNNAMED = "run"
ENGINE_KNOB, MEGATRON = "parallel.engine", "megatron"
RUN = "main_ppo"
SFT = "sft_trainer"

ESTIMATORS = {
    "ppo": "gae",
    "grpo": "grpo",
    "dapo": "grpo",
    "dr_grpo": "grpo",
    "gspo": "grpo",
    "reinforce_pp": "reinforce_plus_plus",
    "reinforce_pp_baseline": "reinforce_plus_plus_baseline",
    "rloo": "rloo",
}
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
OWN_LOSS = ("gspo",)
"""Algorithms that are GRPO with a policy loss of their own name."""

REWARD_MOVED = "0.7.1"
"""The version that moved every key of rewards below `reward.`."""

KL_NAMES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
RUN_PATHS = {
    "trainer.rollout_data_dir": "log/rollouts",
    "trainer.validation_data_dir": "log/evaluations",
    "ray_kwargs.timeline_json_file": "log/ray-timeline.json",
}
"""Where verl writes what a knob switches on, below the run directory."""

ALWAYS = (
    "algorithm.clip_ratio_low",  # verl's clip_ratio alone does nothing; both ends stand in every command
    "algorithm.clip_ratio_high",
    "optimizer.learning_rate",  # verl's own for SFT is 1e-3, far above what fine-tuning of a whole model bears
)


def settings(spec: RunSpec, run_dir: Path) -> list[Setting]:
    """Return every (key, value); a key that is new to the schema has its "+".

    Raises: ValueError with a sentence for what verl cannot be told at all, interpolations among it.
    """
    is_rl = is_in(spec.algorithm, "rl")
    collected = list(_constant(spec, run_dir))
    collected += _model_and_data(spec, run_dir, is_rl)
    if is_rl:
        collected += _reward(spec, run_dir)
        collected.append(("algorithm.adv_estimator", ESTIMATORS[spec.algorithm]))
        collected += [(LOSS, spec.algorithm)] if spec.algorithm in OWN_LOSS else []
        collected += _kl(spec)
        collected += _overlong(spec)
    keys = {key for key, _ in collected}
    knobs = [setting for setting in _knobs(spec, run_dir) if setting[0] not in keys]
    collected += [*_follow(spec, run_dir, {key for key, _ in knobs} | keys), *knobs]
    for key, value in collected:
        if "${" in write(value):
            raise ValueError(
                Sentence(
                    "The value of {key} has {mark} in it. verl resolves its config more than once, so this becomes a "
                    "setting or a variable of the cluster's environment, escaped or not. Write it otherwise.",
                    key=key,
                    mark="${",
                )
            )
    return collected


def _constant(spec: RunSpec, run_dir: Path) -> Iterator[Setting]:
    mark = f"{PROJECT}-{spec.algorithm}"  # GRPO and its kin are else hard to tell apart
    project = spec.values().get(PROJECT_KNOB)
    yield "hydra.run.dir", str(run_dir / "log" / "hydra")
    if project:
        yield MARK, mark
    yield "trainer.logger", [*SINKS, *services_of(spec)]
    yield "trainer.project_name", project or mark
    yield "trainer.experiment_name", spec.name or UNNAMED
    yield "trainer.default_local_dir", str(run_dir / "checkpoints")


def _model_and_data(spec: RunSpec, run_dir: Path, is_rl: bool) -> Iterator[Setting]:
    if spec.data.kind == "hub":
        raise ValueError(
            Sentence(
                "verl reads data from files, not from the hub. Save {data} as Parquet, name its path.",
                data=repr(spec.data.id),
            )
        )
    model = _below(model_path(spec), run_dir, spec.model.kind == "bundled")
    yield ("actor_rollout_ref.model.path" if is_rl else "model.path"), model
    is_materialized = spec.data.kind in MATERIALIZED
    train = _files(train_path(spec), run_dir, is_materialized)
    held_out = _files(eval_path(spec), run_dir, is_materialized)
    yield "data.train_files", train
    if is_rl:
        yield "data.val_files", held_out or train  # verl opens them even where nothing is ever evaluated
        if not held_out:
            yield "trainer.val_before_train", False
    elif held_out:
        yield "data.val_files", held_out
    if not is_materialized and is_rl:
        yield "data.prompt_key", spec.data.prompt_column
    if not is_materialized and not is_rl and spec.data.messages_column:
        yield "data.messages_key", spec.data.messages_column


def _reward(spec: RunSpec, run_dir: Path) -> Iterator[Setting]:
    head = "reward." if is_moved(spec.trainer.version) else ""
    if spec.reward.kind == "url":
        text = "verl asks no URL for rewards. Use a Python file whose compute_score asks it."
        raise ValueError(Sentence(text))
    if spec.reward.kind == "model":
        model = "reward.reward_model" if head else "reward_model"
        yield f"{model}.enable", True
        yield (f"{model}.model_path" if head else f"{model}.model.path"), spec.reward.location
        yield f"{model}.rollout.name", _engine(spec)
    elif spec.reward.kind == "file":
        if spec.reward.location != OWN_SCORES:
            yield f"{head}custom_reward_function.path", spec.reward.location
    else:
        yield f"{head}custom_reward_function.path", str(run_dir / REWARD_FILE)


def is_moved(version: str) -> bool:
    """Return True if this version has the keys of rewards below `reward.`."""
    return as_version(version) >= as_version(REWARD_MOVED)


def _kl(spec: RunSpec) -> Iterator[Setting]:
    """Switch on the one place of verl's two where the KL term belongs; without a coefficient neither is."""
    coefficient = spec.float_knob("algorithm.kl_coefficient")
    if coefficient <= 0:
        return
    estimator = KL_NAMES[str(_value(spec, "algorithm.kl_estimator") or "k1")]
    if _value(spec, "algorithm.kl_in_loss"):
        yield "actor_rollout_ref.actor.use_kl_loss", True
        yield "actor_rollout_ref.actor.kl_loss_coef", coefficient
        yield "actor_rollout_ref.actor.kl_loss_type", estimator
        return
    yield "algorithm.use_kl_in_reward", True
    yield "algorithm.kl_ctrl.kl_coef", coefficient
    yield "algorithm.kl_penalty", estimator
    if (target := _value(spec, "algorithm.kl_target")) is not None:
        yield "algorithm.kl_ctrl.type", "adaptive"
        yield "algorithm.kl_ctrl.target_kl", target


def _overlong(spec: RunSpec) -> Iterator[Setting]:
    """Write the penalty for overlong answers: verl's DAPO reward manager wants all five keys, or none."""
    if (tokens := _value(spec, "reward.overlong_buffer_tokens")) is None:
        return
    head = "+reward.reward_kwargs" if is_moved(spec.trainer.version) else "+reward_model.reward_kwargs"
    yield f"{head}.overlong_buffer_cfg.enable", True
    yield f"{head}.overlong_buffer_cfg.len", tokens
    yield f"{head}.overlong_buffer_cfg.penalty_factor", _value(spec, "reward.overlong_penalty")
    yield f"{head}.overlong_buffer_cfg.log", False
    yield f"{head}.max_resp_len", _value(spec, "rollout.max_new_tokens")


def _follow(spec: RunSpec, run_dir: Path, keys: set[str]) -> Iterator[Setting]:
    """Return what follows from other settings, where no knob has said it."""
    is_rl = is_in(spec.algorithm, "rl")
    if is_rl and "actor_rollout_ref.rollout.name" not in keys:
        yield "actor_rollout_ref.rollout.name", _engine(spec)
    if spec.needs("critic") and "critic.model.path" not in keys:
        yield "critic.model.path", _below(model_path(spec), run_dir, spec.model.kind == "bundled")
    if _value(spec, "async.mode") == "separate" and not _value(spec, "async.lend_trainer_devices"):
        yield "actor_rollout_ref.hybrid_engine", False  # with it verl would lend nothing
    if is_rl and "global_profiler.tool" in keys and "global_profiler.save_path" not in keys:
        yield "global_profiler.save_path", str(run_dir / "profile")
    if not is_rl and "profiler.enable" in keys and "profiler.save_path" not in keys:
        yield "profiler.save_path", str(run_dir / "profile")


def _engine(spec: RunSpec) -> str:
    return str(_value(spec, "rollout.backend") or "vllm")


def _value(spec: RunSpec, knob_id: str) -> Plain:
    """Return a knob's value; None where it does not apply, or means nothing beside the others."""
    chosen = spec.knobs.get(knob_id)
    values = {name: knob.value for name, knob in spec.knobs.items()}
    return None if chosen is None or not is_live(knob_id, values) else chosen.value


def _knobs(spec: RunSpec, run_dir: Path) -> Iterator[Setting]:
    """Return the settings of the knobs. A knob of several keys is written where the chosen engine's config has them.

    Raises: ValueError with a sentence for a knob that somebody chose and of which that config has no key at all.
    """
    trainer = spec.trainer
    here = knob_flags(spec.algorithm, trainer.name, trainer.version)
    program = RUN if is_in(spec.algorithm, "rl") else SFT
    is_megatron = _value(spec, ENGINE_KNOB) == MEGATRON
    there: set[str] = set()
    written: set[str] = set()
    lacking: dict[str, str] = {}
    for argument in knob_arguments(spec, VERL_CONVERSIONS):
        knob, flag = here[argument.knob]
        there.add(argument.knob)
        if argument.form == "engine_options":
            yield from ((f"{argument.name}.{key}", value) for key, value in options_of(str(argument.values[0])).items())
        elif argument.name.startswith("--"):
            yield (
                argument.name,
                str(argument.values[0]),
            )  # an option of Hydra: the config of an older version's other engine
        elif not has_key(program, trainer.version, argument.name, is_megatron=is_megatron):
            lacking[argument.knob] = argument.name
        elif argument.form == "run_path":
            written.add(argument.knob)
            yield argument.name, str(run_dir / RUN_PATHS[argument.name])
        elif not _is_default(argument, knob, flag):
            written.add(argument.knob)
            yield argument.name, _plain(argument, knob, flag)
    for knob_id, name in lacking.items():
        knob, _ = here[knob_id]
        if knob_id not in written and spec.knob(knob_id) != default_of(spec, knob):
            config = "with Megatron" if is_megatron else "with FSDP"
            texts = {"version": trainer.version, "config": config, "name": name, "label": Sentence(knob.label)}
            raise ValueError(Sentence("verl {version} {config} has no {name}. Leave {label} as it is.", **texts))
    for knob_id in ALWAYS:
        if knob_id in here and knob_id not in there:
            _, flag = here[knob_id]
            for name in flag.names:
                yield name, spec.knob(knob_id)


def _is_default(argument: Argument, knob: Knob, flag: Flag) -> bool:
    """Return True for a text that is the number which verl has as its default: "2.0" is 2.0."""
    if argument.form == "pair" or flag.default is None:
        return False
    return type(_plain(argument, knob, flag)) is type(flag.default) and bool(
        _plain(argument, knob, flag) == flag.default
    )


def _plain(argument: Argument, knob: Knob, flag: Flag) -> Plain:
    """Return an argument's value as verl means it: numbers in lists are numbers, and null is null."""
    if argument.form == "pair":
        return list(argument.values)
    value = argument.values[0]
    if argument.form in ("words", "modules"):
        parts = [_number(part.strip()) for part in str(value).split(",") if part.strip()]
        return parts[0] if argument.form == "modules" and len(parts) == 1 else parts
    if argument.form == "quoted_bool" or not isinstance(value, str):
        return value
    if value == "null":
        return None
    is_number = isinstance(flag.default, (int, float)) and not isinstance(flag.default, bool)
    return _number(value) if is_number or knob.type in ("int", "float") else value


def _number(text: str) -> Plain:
    """Return a number where the text is one, and else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _below(path: str, run_dir: Path, is_ours: bool) -> str:
    """Return a path that workers on any node understand: what is written below the run directory, absolutely."""
    return str(run_dir / path) if is_ours else path


def _files(path: str, run_dir: Path, is_ours: bool) -> Plain:
    """Return one file, or a list of them where the spec names several, separated by commas."""
    files = [_below(part.strip(), run_dir, is_ours) for part in path.split(",") if part.strip()]
    return files if len(files) > 1 else next(iter(files), "")
