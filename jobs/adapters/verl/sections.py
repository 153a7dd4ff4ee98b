"""What the settings of a verl command say about model, data, reward and algorithm: the parts that are no knobs."""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.adapters.command_line.hydra import Plain
from jobs.adapters.command_line.services import PROJECT as PROJECT_KNOB
from jobs.adapters.command_line.services import SERVICES
from jobs.adapters.command_line.spec_parts import SpecParts
from jobs.adapters.verl.command_reader import KeyValue
from jobs.adapters.verl.older_keys import translated
from jobs.adapters.verl.settings import (
    ESTIMATORS,
    KL_NAMES,
    LOSS,
    MARK,
    OWN_LOSS,
    OWN_SCORES,
    PROJECT,
    REWARD_FILE,
    RUN,
    SFT,
    SINKS,
    UNNAMED,
)

Settings = Mapping[str, KeyValue]

_MODEL = ("actor_rollout_ref.model.path", "model.path")
_REWARD_MODEL = "reward.reward_model"
_CUSTOM = "reward.custom_reward_function"
_OURS = f"{PROJECT}-"

OURS: Mapping[str, str] = {
    "trainer.default_local_dir": "Checkpoints are below the run directory.",
    "global_profiler.save_path": "Recordings are below the run directory.",
    "profiler.save_path": "Recordings are below the run directory.",
    "trainer.device": "Pitwall chooses the device by what the cluster has.",
    "algorithm.use_kl_in_reward": "",
    "actor_rollout_ref.actor.use_kl_loss": "",
    "actor_rollout_ref.hybrid_engine": "",
    "hydra.run.dir": "",
    MARK: "",
    "ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH": "",
    "ray_kwargs.ray_init.runtime_env.env_vars.TENSORBOARD_DIR": "",
}
"""Keys that the adapter writes itself, with what is told to whoever set them otherwise ("": nothing)."""


@dataclass(slots=True, kw_only=True)
class Sections(SpecParts):
    """The parts of a spec so far, and the version that it is for."""

    version: str


def algorithm_of(program: str, settings: Settings, defaults: Mapping[str, Plain], sections: Sections) -> str:
    """Return the algorithm that the settings make.

    GRPO's kin share one estimator. A command of ours says which it is; else GSPO is known by its loss, DAPO by its
    filter of groups or its reward manager, Dr. GRPO by an advantage that is not divided by the deviation.
    """
    if program == SFT:
        return "sft"
    sections.taken.add("algorithm.adv_estimator")
    setting = settings.get("algorithm.adv_estimator")
    estimator = str(setting.value if setting else defaults.get("algorithm.adv_estimator", "gae"))
    if estimator == "rloo_vectorized":
        estimator = "rloo"
    kin = [algorithm for algorithm, name in ESTIMATORS.items() if name == estimator]
    if not kin:
        assert setting is not None
        sections.refuse(setting, f"No algorithm here has the estimator {estimator}; this is read as GRPO.")
        return "grpo"

    def value(key: str) -> Plain:
        return settings[key].value if key in settings else defaults.get(key)

    if estimator == "grpo" and value(LOSS) in OWN_LOSS:
        sections.taken.add(LOSS)
        return str(value(LOSS))
    labels = [str(settings[key].value) for key in (MARK, "trainer.project_name") if key in settings]
    if ours := [label.removeprefix(_OURS) for label in labels if label.startswith(_OURS)]:
        return ours[0] if ours[0] in kin else kin[0]
    if estimator != "grpo":
        return kin[0]
    if value("algorithm.norm_adv_by_std_in_grpo") is False:
        return "dr_grpo"
    is_dapo = value("reward.reward_manager.name") == "dapo" or value("algorithm.filter_groups.enable") is True
    return "dapo" if is_dapo else "grpo"


def read_sections(program: str, settings: Settings, sections: Sections) -> None:
    """Fill model, data, reward and name; what is taken is no knob any more."""
    path = None
    for key in _MODEL:
        if key in settings:
            path = str(settings[key].value)
            sections.spec["model"] = _model(path)
            sections.taken.add(key)
    critic = settings.get("critic.model.path")
    if critic is not None and str(critic.value) == path:
        sections.taken.add("critic.model.path")  # as the adapter has it where nobody chose another
    _read_data(program, settings, sections)
    if program != SFT:
        _read_reward(settings, sections)
    if "trainer.experiment_name" in settings:
        name = str(settings["trainer.experiment_name"].value)
        sections.spec |= {"name": name} if name != UNNAMED else {}
        sections.taken.add("trainer.experiment_name")
    for key, why in OURS.items():
        if key in settings:
            sections.taken.add(key)
            if why and not _is_as_ours(key, settings[key].value):
                sections.leave(settings[key], why)


def _is_as_ours(key: str, value: Plain) -> bool:
    """Return True for a value that says no more than the adapter does anyway."""
    if key == "trainer.device":
        return value in ("cuda", "cpu")
    return True


def _model(path: str) -> dict[str, str]:
    is_path = path.startswith(("/", "~", ".", "$", "hdfs:", "s3:")) or path.count("/") != 1
    return {"kind": "path" if is_path else "hub", "id": path}


def _read_data(program: str, settings: Settings, sections: Sections) -> None:
    data: dict[str, str] = {}
    if "data.train_files" in settings:
        data |= {"kind": "path", "id": _joined(settings["data.train_files"].value)}
        data |= {} if program == SFT else {"answer_column": "reward_model.ground_truth"}
    held_out = _joined(settings["data.val_files"].value) if "data.val_files" in settings else ""
    if held_out != data.get("id"):
        data |= {"eval_id": held_out} if held_out else {}
    elif "trainer.val_before_train" in settings and settings["trainer.val_before_train"].value is False:
        sections.taken.add("trainer.val_before_train")  # as the adapter has it where nothing is held out
    columns = {"data.messages_key": "messages_column"} if program == SFT else {"data.prompt_key": "prompt_column"}
    for key, column in columns.items():
        if key in settings:
            data[column] = str(settings[key].value)
    sections.taken |= {"data.train_files", "data.val_files", *columns} & set(settings)
    if data:
        sections.spec["data"] = data


def _joined(value: Plain) -> str:
    if value is None:
        return ""
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


def _read_reward(settings: Settings, sections: Sections) -> None:
    def value(name: str) -> Plain:
        key = translated(RUN, name, sections.version)
        sections.taken |= {key} & set(settings)
        return settings[key].value if key in settings else None

    path = value(f"{_CUSTOM}.path")
    model, is_on = value(f"{_REWARD_MODEL}.model_path"), value(f"{_REWARD_MODEL}.enable")
    if path:
        sections.spec["reward"] = {"kind": "file", "location": str(path)}
        if str(path).endswith(f"/{REWARD_FILE}"):
            why = "The file belongs to another run of Pitwall. Give the reward's source, or its kind."
            sections.refuse(settings[translated(RUN, f"{_CUSTOM}.path", sections.version)], why)
    elif is_on and model:
        sections.spec["reward"] = {"kind": "model", "location": str(model)}
        value(f"{_REWARD_MODEL}.rollout.name")
    else:
        sections.spec["reward"] = {"kind": "file", "location": OWN_SCORES}


def loggers_of(settings: Settings, sections: Sections) -> dict[str, Plain]:
    """Return the knobs of other loggers: the services beside what Pitwall reads, and the project there."""
    knobs: dict[str, Plain] = {}
    if (loggers := settings.get("trainer.logger")) is not None:
        names = loggers.value if isinstance(loggers.value, list) else [loggers.value]
        knobs[SERVICES] = ",".join(str(name) for name in names if name not in SINKS)
    if (project := settings.get("trainer.project_name")) is not None and not str(project.value).startswith(_OURS):
        knobs[PROJECT_KNOB] = str(project.value)
    sections.taken |= {"trainer.logger", "trainer.project_name"} & set(settings)
    return knobs


def kl_of(settings: Settings, defaults: Mapping[str, Plain], sections: Sections) -> dict[str, Plain]:
    """Return the KL knobs: verl has a coefficient and an estimator for each of two places, and a switch for each."""

    def value(key: str) -> Plain:
        return settings[key].value if key in settings else defaults.get(key)

    in_loss = (
        "actor_rollout_ref.actor.use_kl_loss",
        "actor_rollout_ref.actor.kl_loss_coef",
        "actor_rollout_ref.actor.kl_loss_type",
    )
    in_reward = ("algorithm.use_kl_in_reward", "algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty")
    adaptive = ("algorithm.kl_ctrl.type", "algorithm.kl_ctrl.target_kl")
    sections.taken |= {*in_loss, *in_reward, *adaptive} & set(settings)
    is_in_loss, is_in_reward = value(in_loss[0]) is True, value(in_reward[0]) is True
    if not is_in_loss and not is_in_reward:
        for key in (in_loss[1], in_reward[1]):
            if key in settings:
                sections.leave(settings[key], f"It does nothing: neither {in_reward[0]} nor {in_loss[0]} is on.")
        return {"algorithm.kl_coefficient": 0.0}
    if is_in_loss and is_in_reward:
        sections.refuse(settings[in_reward[0]], "The KL term stands in the loss and in the reward; the loss keeps it.")
    here = in_loss if is_in_loss else in_reward
    names = {theirs: ours for ours, theirs in KL_NAMES.items()}
    estimator = str(value(here[2]))
    section = {
        "algorithm.kl_coefficient": value(here[1]),
        "algorithm.kl_in_loss": is_in_loss,
        "algorithm.kl_estimator": names.get(estimator, estimator),
    }
    if value(adaptive[0]) == "adaptive" and not is_in_loss:
        section["algorithm.kl_target"] = value(adaptive[1])
    return section


def overlong_of(settings: Settings, sections: Sections) -> dict[str, Plain]:
    """Return the knobs of the penalty for overlong answers, of whose five keys two say something."""
    head = translated(RUN, "reward.reward_kwargs.", sections.version).rstrip(".")
    keys = {key for key in settings if key.startswith(f"{head}.overlong_buffer_cfg.")} | {f"{head}.max_resp_len"}
    sections.taken |= keys & set(settings)

    def value(name: str) -> Plain:
        key = f"{head}.overlong_buffer_cfg.{name}"
        return settings[key].value if key in settings else None

    if not value("enable") or value("len") is None:
        return {}
    penalty = {"reward.overlong_penalty": value("penalty_factor")} if value("penalty_factor") is not None else {}
    return {"reward.overlong_buffer_tokens": value("len"), **penalty}
