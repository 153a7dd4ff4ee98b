"""Where a teacher's files are, and whether it speaks the student's language: same tokens, same ids."""

from pathlib import Path
from typing import Any

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.model_files import model_folder, read_json, source_of
from jobs.engine.data.vocabulary import differing_tokens
from jobs.engine.problem import RunProblem

FIELD = "knobs.models.teacher_path"


def teacher_folder(spec: RunSpec, *, with_weights: bool = True) -> Path:
    """Return the folder of the model that the knob names: bundled, a path, or a hub id.

    Raises: RunProblem naming the knob.
    """
    place = str(spec.knob("models.teacher_path") or "").strip()
    if not place:
        raise RunProblem(FIELD, "Distillation needs a teacher. Name its model: a folder on the cluster or a hub id.")
    try:
        return model_folder(source_of(place), with_weights=with_weights)
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
    differing = differing_tokens((student, "model.id"), (teacher, FIELD))
    if differing:
        raise RunProblem(
            FIELD,
            f"The teacher {teacher.name!r} has another vocabulary than the student: {differing}. Use a teacher of the "
            "student's family.",
        )


def num_outputs(folder: Path, *, field: str) -> int:
    """Return how many tokens the output layer of a folder's model has. Raises: RunProblem naming `field`."""
    config: Any = read_json(folder / "config.json", field=field)
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    if not isinstance(size, int):
        raise RunProblem(field, f"The config.json of {folder.name!r} has no vocab_size.")
    return size
