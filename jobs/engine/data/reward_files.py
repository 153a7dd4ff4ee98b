"""Where a run's reward model is, and whether it can score what the policy says: one number, of the same tokens.

Imports no torch.
"""

from pathlib import Path

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.model_files import (
    architectures,
    count_parameters,
    find_model,
    model_folder,
    read_json,
    source_of,
)
from jobs.engine.data.vocabulary import differing_tokens
from jobs.engine.problem import RunProblem

_USUAL_LABELS = 2
"""Of transformers' configurations that do not say how many labels they have."""


def reward_field(spec: RunSpec) -> str:
    """Return the field of the spec that names the reward model."""
    number = next(i for i, part in enumerate(spec.reward.parts) if part.kind == "model")
    return "reward.location" if number == 0 else f"reward.more.{number - 1}.location"


def reward_folder(spec: RunSpec, *, with_weights: bool = True) -> Path:
    """Return the folder of the reward model that a run's reward names: a path, or a hub id.

    Raises: RunProblem naming the field, if it is not there or is no model that says one number of a sequence.
    """
    place, field = spec.reward_model.strip(), reward_field(spec)
    try:
        folder = find_model(source_of(place), with_weights=with_weights)
        config = read_json(folder / "config.json", field=field)
        if with_weights:
            count_parameters(folder, place)
    except RunProblem as problem:
        raise RunProblem(field, f"The reward model: {problem.message}") from problem
    names = architectures(config)
    if not any("ForSequenceClassification" in name for name in names):
        what = ", ".join(names) or "no architecture"
        raise RunProblem(
            field,
            f"{place!r} is no reward model: its config.json names {what}. Use a folder of a "
            "...ForSequenceClassification model, such as model/final of a run with the algorithm Reward model.",
        )
    labels = config.get("id2label")
    count = config.get("num_labels") or (len(labels) if isinstance(labels, dict) else _USUAL_LABELS)
    if count != 1:
        raise RunProblem(
            field, f"{place!r} tells {count} classes apart; a reward model says one number (num_labels 1)."
        )
    return folder


def check_reward_model(spec: RunSpec) -> None:
    """Hold a run's reward model against its policy before anything is loaded; nothing without one.

    It reads the tokens that the policy drew, so these have to mean the same to both. Raises: RunProblem naming the
    field.
    """
    if not spec.needs("reward"):
        return
    folder, field = reward_folder(spec, with_weights=False), reward_field(spec)
    differing = differing_tokens((model_folder(spec.model, with_weights=False), "model.id"), (folder, field))
    if differing:
        raise RunProblem(
            field,
            f"The reward model {folder.name!r} has another vocabulary than the policy: {differing}. Use one that was "
            "trained from a model with the policy's tokenizer.",
        )
