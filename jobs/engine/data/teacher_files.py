"""Where a teacher's files are, and whether it speaks the student's language: same tokens, same ids."""

from pathlib import Path
from typing import Any

from jobs.catalog.spec.runspec import ModelSource, RunSpec
from jobs.engine.data.model_files import BUNDLED, model_folder, read_json
from jobs.engine.problem import RunProblem

FIELD = "knobs.models.teacher_path"
_SHOWN = 3


def teacher_folder(spec: RunSpec, *, with_weights: bool = True) -> Path:
    """Return the folder of the model that the knob names: bundled, a path, or a hub id.

    Raises: RunProblem naming the knob.
    """
    place = str(spec.knob("models.teacher_path") or "").strip()
    if not place:
        raise RunProblem(FIELD, "Distillation needs a teacher. Name its model: a folder on the cluster or a hub id.")
    try:
        return model_folder(_source(place), with_weights=with_weights)
    except RunProblem as problem:
        raise RunProblem(FIELD, f"The teacher: {problem.message}") from problem


def check_teacher(spec: RunSpec) -> None:
    """Hold a run's teacher against its student before anything is loaded; nothing without a teacher.

    Raises: RunProblem naming the knob.
    """
    if spec.needs("teacher"):
        check_vocabulary(model_folder(spec.model, with_weights=False), teacher_folder(spec, with_weights=False))


def check_vocabulary(student: Path, teacher: Path) -> None:
    """Hold a teacher's tokenizer against the student's: distributions compare only where ids mean the same tokens.

    Raises: RunProblem naming the knob, with what differs.
    """
    ours, theirs = _ids(student, field="model.id"), _ids(teacher, field=FIELD)
    if ours == theirs:
        return
    differing = sorted(token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token))
    shown = ", ".join(repr(token) for token in differing[:_SHOWN])
    raise RunProblem(
        FIELD,
        f"The teacher {teacher.name!r} has another vocabulary than the student: {len(theirs)} tokens and {len(ours)}, "
        f"of which {len(differing)} have other ids, such as {shown}. Use a teacher of the student's family.",
    )


def num_outputs(folder: Path, *, field: str) -> int:
    """Return how many tokens the output layer of a folder's model has. Raises: RunProblem naming `field`."""
    config: Any = read_json(folder / "config.json", field=field)
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    if not isinstance(size, int):
        raise RunProblem(field, f"The config.json of {folder.name!r} has no vocab_size.")
    return size


def _source(place: str) -> ModelSource:
    if place.startswith(("/", "~", ".")):
        return ModelSource(kind="path", id=place)
    is_bundled = "/" not in place and (BUNDLED / place / "config.json").is_file()
    return ModelSource(kind="bundled" if is_bundled else "hub", id=place)


def _ids(folder: Path, *, field: str) -> dict[str, int]:
    """Return the id of each token of a tokenizer.json, added ones included."""
    table = read_json(folder / "tokenizer.json", field=field)
    model: Any = table.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # of Unigram models: pairs of token and score, in the order of ids
        vocabulary = {entry[0]: number for number, entry in enumerate(vocabulary)}
    added: Any = table.get("added_tokens") or []
    return {**(vocabulary or {}), **{entry["content"]: entry["id"] for entry in added}}
