"""A spec as verl's Hydra overrides, in the order in which they are written: what is always the same, model and data,
the reward, the algorithm, then every knob that differs from verl's own default.

Sources: verl 0.9.1 trainer/config (keys), utils/config.py and workers/config (what must be set), trainer/ppo.
"""

from collections.abc import Iterator
from pathlib import Path

from jobs.adapters.hydra import Plain
from jobs.adapters.inputs import LAID_OUT, eval_path, model_path, train_path
from jobs.adapters.spelled import Conversions, Word, words_of
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import applicable
from jobs.catalog.runspec import RunSpec
from jobs.catalog.trainer import as_version

Setting = tuple[str, Plain]

METRICS = "log/verl.jsonl"
"""Where verl's file logger writes, below the run directory. verl opens it anew at every start: one per attempt."""

REWARD_FILE = "inputs/reward.py"
OWN_SCORES = "pkg://verl.utils.reward_score:default_compute_score"
"""verl's own scoring by the column data_source, as a reward of the kind `file`: what a command without one means."""

PROJECT = "pitwall"
UNNAMED = "run"
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
REWARD_MOVED = "0.7.1"
"""The version that moved every key of rewards below `reward.`."""

KL_NAMES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
KL_KNOBS = ("algorithm.kl_coefficient", "algorithm.kl_in_loss", "algorithm.kl_estimator")
"""The KL knobs decide together which of verl's two places is switched on, so they are not written one by one."""

ALWAYS = (
    "algorithm.clip_ratio_low",  # verl's clip_ratio alone does nothing; both ends stand in every command
    "algorithm.clip_ratio_high",
    "optimizer.learning_rate",  # verl's own for SFT is 1e-3, far above what fine-tuning of a whole model bears
)


def settings(spec: RunSpec, run_dir: Path, conversions: Conversions) -> list[Setting]:
    """Return every (key, value); a key that is new to the schema has its "+".

    Raises: ValueError with a sentence for what verl cannot be told at all.
    """
    is_rl = is_in(spec.algorithm, "rl")
    found = list(_constant(spec, run_dir))
    found += _model_and_data(spec, run_dir, is_rl)
    if is_rl:
        found += _reward(spec, run_dir)
        found.append(("algorithm.adv_estimator", ESTIMATORS[spec.algorithm]))
        found += _kl(spec)
    given = {key for key, _ in found}
    knobs = [setting for setting in _knobs(spec, conversions) if setting[0] not in given]
    return [*found, *_follow(spec, run_dir, {key for key, _ in knobs} | given), *knobs]


def _constant(spec: RunSpec, run_dir: Path) -> Iterator[Setting]:
    yield "hydra.run.dir", str(run_dir / "log" / "hydra")
    yield "trainer.logger", ["console", "file"]
    yield "trainer.project_name", PROJECT
    yield "trainer.experiment_name", spec.name or UNNAMED
    yield "trainer.default_local_dir", str(run_dir / "checkpoints")


def _model_and_data(spec: RunSpec, run_dir: Path, is_rl: bool) -> Iterator[Setting]:
    if spec.data.kind == "hub":
        raise ValueError(
            f"verl reads data from files, not from the hub. Save {spec.data.id!r} as Parquet, name its path."
        )
    model = _below(model_path(spec), run_dir, spec.model.kind == "bundled")
    yield ("actor_rollout_ref.model.path" if is_rl else "model.path"), model
    is_laid_out = spec.data.kind in LAID_OUT
    train = _files(train_path(spec), run_dir, is_laid_out)
    held_out = _files(eval_path(spec), run_dir, is_laid_out)
    yield "data.train_files", train
    if is_rl:
        yield "data.val_files", held_out or train  # verl opens them even where nothing is ever evaluated
        if not held_out:
            yield "trainer.val_before_train", False
    elif held_out:
        yield "data.val_files", held_out
    if not is_laid_out and is_rl:
        yield "data.prompt_key", spec.data.prompt_column
    if not is_laid_out and not is_rl and spec.data.messages_column:
        yield "data.messages_key", spec.data.messages_column


def _reward(spec: RunSpec, run_dir: Path) -> Iterator[Setting]:
    head = "reward." if as_version(spec.trainer.version) >= as_version(REWARD_MOVED) else ""
    if spec.reward.kind == "url":
        raise ValueError("verl asks no URL for rewards. Use a Python file whose compute_score asks it.")
    if spec.reward.kind == "model":
        model = "reward.reward_model" if head else "reward_model"
        yield f"{model}.enable", True
        yield (f"{model}.model_path" if head else f"{model}.model.path"), spec.reward.location
        yield f"{model}.rollout.name", _engine(spec)
    elif spec.reward.kind == "file":
        path, name = split_location(spec.reward.location)
        if spec.reward.location != OWN_SCORES:
            yield f"{head}custom_reward_function.path", path
            yield f"{head}custom_reward_function.name", name
    else:
        yield f"{head}custom_reward_function.path", str(run_dir / REWARD_FILE)


def split_location(location: str) -> tuple[str, str]:
    """Return path and function of a file reward: `path.py`, or `path.py:function` where it is not compute_score."""
    path, sign, name = location.rpartition(":")
    return (path, name) if sign and name.isidentifier() and path else (location, "compute_score")


def _kl(spec: RunSpec) -> Iterator[Setting]:
    """Switch on the one place of verl's two where the KL term belongs; without a coefficient neither is."""
    coefficient = spec.float_knob("algorithm.kl_coefficient")
    if coefficient <= 0:
        return
    chosen = spec.knobs.get("algorithm.kl_estimator")
    estimator = KL_NAMES.get(str(chosen.value), str(chosen.value)) if chosen is not None else ""
    in_loss = spec.knobs.get("algorithm.kl_in_loss")
    if in_loss is not None and in_loss.value:
        yield "actor_rollout_ref.actor.use_kl_loss", True
        yield "actor_rollout_ref.actor.kl_loss_coef", coefficient
        if estimator:
            yield "actor_rollout_ref.actor.kl_loss_type", estimator
    else:
        yield "algorithm.use_kl_in_reward", True
        yield "algorithm.kl_ctrl.kl_coef", coefficient
        if estimator:
            yield "algorithm.kl_penalty", estimator


def _follow(spec: RunSpec, run_dir: Path, given: set[str]) -> Iterator[Setting]:
    """Return what follows from other settings, where no knob has said it."""
    is_rl = is_in(spec.algorithm, "rl")
    if is_rl and "actor_rollout_ref.rollout.name" not in given:
        yield "actor_rollout_ref.rollout.name", _engine(spec)
    if is_in(spec.algorithm, "critic") and "critic.model.path" not in given:
        yield "critic.model.path", _below(model_path(spec), run_dir, spec.model.kind == "bundled")
    if _value(spec, "async.mode") == "separate":
        yield "actor_rollout_ref.hybrid_engine", False
    if is_rl and "trainer.rollout_data_dir" not in given:
        yield "trainer.rollout_data_dir", str(run_dir / "log" / "rollouts")
    if is_rl and "global_profiler.tool" in given and "global_profiler.save_path" not in given:
        yield "global_profiler.save_path", str(run_dir / "profile")
    if not is_rl and "profiler.enable" in given and "profiler.save_path" not in given:
        yield "profiler.save_path", str(run_dir / "profile")


def _engine(spec: RunSpec) -> str:
    return str(_value(spec, "rollout.backend") or "vllm")


def _value(spec: RunSpec, knob_id: str) -> Plain:
    chosen = spec.knobs.get(knob_id)
    return None if chosen is None else chosen.value


def _knobs(spec: RunSpec, conversions: Conversions) -> Iterator[Setting]:
    here = applicable(spec.algorithm, spec.trainer.name, spec.trainer.version)
    written = [word for word in words_of(spec, conversions) if word.knob not in KL_KNOBS]
    there = {word.knob for word in written}
    for word in written:
        yield word.name, _plain(word)
    for knob_id in ALWAYS:
        if knob_id in here and knob_id not in there:
            flag = here[knob_id].flag(trainer=spec.trainer.name, version=spec.trainer.version, algorithm=spec.algorithm)
            assert flag is not None
            for name in flag.names:
                yield name, spec.knob(knob_id)


def _plain(word: Word) -> Plain:
    """Return a word's value as verl means it: numbers in lists are numbers, and null is null."""
    if word.form == "pair":
        return list(word.values)
    value = word.values[0]
    if word.form == "words":
        return [_item(part.strip()) for part in str(value).split(",") if part.strip()]
    return None if value == "null" else value


def _item(text: str) -> Plain:
    try:
        return int(text)
    except ValueError:
        return text


def _below(path: str, run_dir: Path, is_ours: bool) -> str:
    """Return a path that workers on any node understand: what is laid out below the run directory, absolutely."""
    return str(run_dir / path) if is_ours else path


def _files(path: str, run_dir: Path, is_ours: bool) -> Plain:
    """Return one file, or a list of them where the spec names several, divided by commas."""
    found = [_below(part.strip(), run_dir, is_ours) for part in path.split(",") if part.strip()]
    return found if len(found) > 1 else next(iter(found), "")
