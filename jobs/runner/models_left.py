"""What a trainer that writes no events has left of its model: a whole one, adapters, or both."""

import json
import pickletools
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.runner.console_client.zip_image import is_of_checkpoint
from profiling import events
from profiling.events import Event

_STEP = re.compile(r"_(\d+)$")
_CONFIG, _ADAPTER = "config.json", "adapter_config.json"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model*.bin")
_WRAPPED, _MOST_OF_HEADER = "base_model.model.", 100_000_000
"""Before the names of parameters inside PEFT; what safetensors allows for a header, in bytes."""

_HEADS = ("score.weight", "classifier.weight")
"""What PEFT keeps as a whole of a model for sequence classification, by the ends of their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsLeft:
    """The folders of a whole model and of adapters that were trained beside one; None where there is none."""

    whole: Path | None
    adapters: Path | None


def models_left(run_dir: Path, patterns: Sequence[str]) -> ModelsLeft:
    """Return what a trainer left in its folders, the newest of each by step.

    A model under the names that its parameters have inside PEFT, as a trainer may save one with adapters, is none:
    loaded, it would be one of random numbers.
    """
    folders = [folder for pattern in patterns for folder in run_dir.glob(pattern)]
    adapters = [folder for folder in folders if (folder / _ADAPTER).is_file() and _weights(folder)]
    whole = [
        folder
        for folder in folders
        if (folder / _CONFIG).is_file() and (weights := _weights(folder)) and not any(map(_is_wrapped, weights))
    ]
    return ModelsLeft(whole=_newest(folder for folder in whole if folder not in adapters), adapters=_newest(adapters))


def announced(left: ModelsLeft, run_dir: Path, *, attempt: int, scores: bool) -> Iterator[Event]:
    """Yield what tells the console of it: adapters are the run's model where there is no whole one.

    Of a reward model, which `scores`, they are that with the trained head alone: with another one, which PEFT would
    draw at random, they say nothing.
    """
    if left.whole is not None:
        yield _announced("model", left.whole, run_dir, attempt)
    if left.adapters is not None:
        is_model = left.whole is None and not (scores and not holds_head(left.adapters))
        yield _announced("model" if is_model else "adapter", left.adapters, run_dir, attempt)


def holds_head(adapters: Path) -> bool:
    """Return whether a folder of adapters holds a trained head that scores beside them."""
    return any(name.endswith(_HEADS) for path in _weights(adapters) for name in _names(path))


def _announced(kind: str, folder: Path, run_dir: Path, attempt: int) -> Event:
    files = (path for path in folder.rglob("*") if path.is_file() and not is_of_checkpoint(path.relative_to(folder)))
    size = sum(path.stat().st_size for path in files)
    path, step = str(folder.relative_to(run_dir)), _step_of(folder)
    return events.artifact(f"{kind}-final", artifact=kind, path=path, attempt=attempt, step=step, size=size)


def _newest(folders: Iterable[Path]) -> Path | None:
    return max(folders, key=lambda folder: (_step_of(folder), folder), default=None)


def _weights(folder: Path) -> list[Path]:
    return [path for pattern in _WEIGHTS for path in folder.glob(pattern)]


def _is_wrapped(weights: Path) -> bool:
    return any(name.startswith(_WRAPPED) for name in _names(weights)) if weights.suffix == ".safetensors" else False


def _names(weights: Path) -> list[str]:
    """Return the names of the parameters of a file; [] where it cannot be read.

    The header of safetensors is a JSON object behind its length. A file of torch's is an archive with a pickle, which
    is not run: its texts are the names, and others.
    """
    try:
        if weights.suffix != ".safetensors":
            return _texts_of_pickle(weights)
        with weights.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            return list(json.loads(file.read(min(size, _MOST_OF_HEADER))))
    except (OSError, ValueError, TypeError, RecursionError, struct.error, zipfile.BadZipFile):
        return []


def _texts_of_pickle(weights: Path) -> list[str]:
    with zipfile.ZipFile(weights) as archive:
        pickles = [archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl")]
    return [argument for one in pickles for _, argument, _ in pickletools.genops(one) if isinstance(argument, str)]


def _step_of(folder: Path) -> int:
    """Return the step in the name of a folder or of one above it, as in global_step_40; -1 if none has one."""
    steps = (_STEP.search(name) for name in reversed(folder.parts[-2:]))
    return next((int(match[1]) for match in steps if match), -1)
