"""Which fields of the spec verl's other keys set, older names of all keys among them: for look-ups."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from jobs.adapters.adapter import OptionName
from jobs.adapters.verl.command_reader import NODES, PER_NODE
from jobs.adapters.verl.older_keys import CONFIG_OPTIONS, INERT, INERT_SINCE, REMOVED, RENAMED, translated
from jobs.adapters.verl.sections import OURS
from jobs.adapters.verl.settings import LOSS, RUN, SFT
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import knobs
from jobs.catalog.trainer import as_version, trainers

_TRAINER = "verl"
_REWARD = ("reward.location", "reward.kind")
_OVERLONG = ("reward.overlong_buffer_tokens", "reward.overlong_penalty")
_PENALTY = "reward.reward_kwargs"
_EVERYWHERE = {
    "data.train_files": ("data.id",),
    "data.val_files": ("data.eval_id",),
    "trainer.experiment_name": ("name",),
    "trainer.device": ("hardware.device",),
}
_SPEC_FIELDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    RUN: {
        **_EVERYWHERE,
        "algorithm.adv_estimator": ("algorithm",),
        LOSS: ("algorithm",),
        "algorithm.norm_adv_by_std_in_grpo": ("algorithm",),
        "actor_rollout_ref.model.path": ("model.id",),
        "data.prompt_key": ("data.prompt_column",),
        "reward.custom_reward_function.path": _REWARD,
        "reward.reward_model.enable": _REWARD,
        "reward.reward_model.model_path": _REWARD,
        "reward.reward_model.rollout.name": _REWARD,
        **{f"{_PENALTY}.overlong_buffer_cfg.{key}": _OVERLONG for key in ("enable", "len", "penalty_factor", "log")},
        f"{_PENALTY}.max_resp_len": ("rollout.max_new_tokens",),
        "algorithm.use_kl_in_reward": ("algorithm.kl_in_loss",),
        "actor_rollout_ref.actor.use_kl_loss": ("algorithm.kl_in_loss",),
        "algorithm.kl_ctrl.type": ("algorithm.kl_target",),
        "actor_rollout_ref.hybrid_engine": ("async.mode", "async.lend_trainer_devices"),
    },
    SFT: {**_EVERYWHERE, "model.path": ("model.id",), "data.messages_key": ("data.messages_column",)},
}
"""By the newest names: the knobs and fields of the spec that a key stands for."""

_LAUNCHER = {
    **dict.fromkeys(NODES, ("placement.policy_nodes",)),
    **dict.fromkeys(PER_NODE, ("placement.policy_gpus_per_node",)),
}
_CONFIG_NAME = {"--config-name": ("parallel.engine",)}
_ITSELF = "Pitwall sets it itself."


@cache
def option_names(*, version: str) -> Sequence[OptionName]:
    """Return every key that a command for this version may have and that is no knob's flag."""
    return tuple(dict.fromkeys(_option_names(version)))


def _option_names(version: str) -> Iterator[OptionName]:
    for program in (RUN, SFT):
        by_key = {
            translated(program, name, version): spec_fields for name, spec_fields in _SPEC_FIELDS[program].items()
        }
        for name, spec_fields in by_key.items():
            yield OptionName(name=name, spec_fields=spec_fields)
        for name, spec_fields in (*by_key.items(), *_knob_names(program, version)):
            for other in _other_names(program, name):
                yield OptionName(name=other, spec_fields=spec_fields)
    for name, spec_fields in (_LAUNCHER | _CONFIG_NAME).items():
        yield OptionName(name=name, spec_fields=spec_fields)
    said = {name for names in _SPEC_FIELDS.values() for name in names}
    for name, why in OURS.items():
        if name not in said:
            yield OptionName(name=name, why=why or _ITSELF)
    for name, why in CONFIG_OPTIONS.items():
        yield OptionName(name=name, why=why)
    for name, why in REMOVED.items():
        if not name.endswith("."):
            yield OptionName(name=name, why=why)
    if as_version(version) >= as_version(INERT_SINCE):
        for name, why in INERT.items():
            yield OptionName(name=name, why=why)


def _knob_names(program: str, version: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys of the knobs that a program of a version has, with the knob."""
    for knob in knobs().values():
        for algorithm in knob.algorithms:
            if is_in(algorithm, "rl") == (program == RUN) and trainers()[_TRAINER].offers(algorithm, version):
                flag = knob.flag(trainer=_TRAINER, version=version, algorithm=algorithm)
                for name in flag.names if flag is not None else ():
                    yield name.lstrip("+"), (knob.id,)


def _other_names(program: str, name: str) -> Iterator[str]:
    """Yield what other versions call a key."""
    for renamed in RENAMED[program]:
        for here, there in ((renamed.new, renamed.old), (renamed.old, renamed.new)):
            if name == here:
                yield there
            elif here.endswith(".") and name.startswith(here):
                yield there + name.removeprefix(here)
