"""Going on from a checkpoint: what `resume.json` asks for, what may differ from then, and the best model so far.

Imports nothing heavy: a checkpoint that cannot be used is refused before any worker loads a library.
"""

import hashlib
import json
import os
import shutil
from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from jobs.catalog.knob import knobs
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.atomic_folder import atomic_folder
from jobs.engine.checkpoints.adapter_export import SUFFIX
from jobs.engine.checkpoints.checkpoint import CheckpointSource, open_checkpoint
from jobs.engine.checkpoints.export import ABOUT
from jobs.engine.data.examples import Example, sides_of
from jobs.engine.problem import CheckpointLost, RunProblem

FILE = "resume.json"
_NUM_FINGERPRINTED = 1000
_OF_ADAPTERS = (
    "lora.rank",
    "lora.alpha",
    "lora.target_modules",
    "lora.rslora",
    "lora.dora",
    "quantization.load_in_4bit",
    "quantization.double_quantization",
)
"""What a checkpoint of adapters means; with another alpha the same elements would be another model."""


def checkpoint_to_resume(run_dir: Path, spec: RunSpec) -> CheckpointSource | None:
    """Return the checkpoint that the run directory's `resume.json` names, fit for `spec`; None if there is no such
    file. Whether its parts are whole says `CheckpointSource.check`.

    Raises: RunProblem naming `resume` and what is wrong; CheckpointLost where an older checkpoint may do.
    """
    try:
        raw = json.loads((run_dir / FILE).read_text(encoding="utf-8"))
        attempt, step, folder = int(raw["attempt"]), int(raw["step"]), Path(raw["folder"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise RunProblem("resume", f"{FILE} is not what it should be: attempt, step and folder ({error!r}).") from error
    source = open_checkpoint(folder, name=f"Checkpoint {step} of attempt {attempt}")
    if source.state.step != step:
        raise CheckpointLost(f"{source.name} says that it is of step {source.state.step}. Resume from another one.")
    _check_spec(source, spec)
    return source


def _check_spec(checkpoint: CheckpointSource, spec: RunSpec) -> None:
    """Refuse what makes going on meaningless; ranks, ZeRO stage, batch sizes and learning rate may differ."""
    then, name = checkpoint.index["spec"], checkpoint.name
    for field, before, now in (
        ("algorithm", then["algorithm"], spec.algorithm),
        *((f"model.{key}", then["model"].get(key), value) for key, value in spec.model),
        ("train.seed", then["knobs"]["train.seed"]["value"], spec.knob("train.seed")),
        *((name, _knob_then(then, name), spec.knob(name)) for name in _OF_ADAPTERS if name in spec.knobs),
    ):
        if before != now:
            raise RunProblem(
                "resume",
                f"{name} was trained with {field} {before!r}, this attempt has {now!r}. Put it back, or start from the "
                "beginning.",
            )
    if checkpoint.state.step > spec.num_steps:
        raise RunProblem(
            "resume",
            f"{name} is past the last step: train.num_steps is {spec.num_steps}. Raise it, or resume from an earlier "
            "checkpoint.",
        )


def _knob_then(spec: Mapping[str, Any], name: str) -> Any:
    """Return what a knob was in a checkpoint's spec; its default where the trainer did not have it yet."""
    held = spec["knobs"].get(name)
    return held["value"] if held is not None else knobs()[name].default


def check_data(checkpoint: CheckpointSource, examples: Sequence[Example]) -> None:
    """Raise RunProblem if the training data are not those of the checkpoint, whose position counts in them."""
    then, now = checkpoint.index["data"], fingerprint(examples)
    if all(then[key] == value for key, value in now.items()):
        return
    num_then, num_now = then["num_examples"], now["num_examples"]
    what = f"{num_now:,} usable rows, then {num_then:,}" if num_then != num_now else "other content in as many rows"
    raise RunProblem(
        "resume",
        f"The training data have changed since {checkpoint.name}: {what}. Put them back, or start from the beginning.",
    )


def first_rendered(checkpoint: CheckpointSource | None) -> datetime | None:
    """Return when the run's first attempt laid out its prompts, None if that is now or was not kept.

    Templates may write the date into a prompt: on another day the data would be others.
    """
    then = checkpoint.index["data"].get("rendered_at") if checkpoint is not None else None
    return datetime.fromisoformat(then) if then else None


class DataFingerprint(TypedDict):
    """What tells training data from others: the number of examples, and a digest of some of them.

    `rendered_at` is the local time that templates were told, in ISO 8601; checkpoints of before do not have it.
    """

    num_examples: int
    sha256: str
    rendered_at: NotRequired[str]


def fingerprint(examples: Sequence[Example]) -> DataFingerprint:
    """Return the number of examples and a SHA-256 over the tokens of up to 1,000 of them, evenly spread."""
    digest = hashlib.sha256()
    num_taken = min(len(examples), _NUM_FINGERPRINTED)
    for k in range(num_taken):
        for side in sides_of(examples[k * len(examples) // num_taken]):
            digest.update(array("q", [len(side.tokens), *side.tokens]).tobytes())
    return {"num_examples": len(examples), "sha256": digest.hexdigest()}


def carry_best(checkpoint: CheckpointSource, run_dir: Path) -> dict[str, object] | None:
    """Take over `model/best`, and the folder of its adapters, of the attempt that wrote the checkpoint; return what its
    `pitwall.json` says.

    None, and nothing is taken over, if that attempt's best model is not the one that was best at the checkpoint: it may
    have found a better one in steps that are not part of this run any more.
    """
    models = checkpoint.folder.parent.parent / "model"
    try:
        about: dict[str, object] = json.loads((models / "best" / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if about.get("step") != checkpoint.state.best_step:
        return None
    for name in ("best", f"best{SUFFIX}"):
        if (models / name).is_dir():
            _link_folder(models / name, run_dir / "model" / name)
    return about


def _link_folder(source: Path, final: Path) -> None:
    with atomic_folder(final) as partial:
        for file in sorted(source.iterdir()):
            try:
                os.link(file, partial / file.name)  # nobody writes into a finished folder
            except OSError:
                shutil.copyfile(file, partial / file.name)
