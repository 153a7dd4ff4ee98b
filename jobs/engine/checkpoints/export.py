"""Write the policy as a Hugging Face folder that is there whole or not at all."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jobs.engine.atomic_folder import atomic_folder
from jobs.engine.workers.worker_group import WorkerGroup

ABOUT = "pitwall.json"
"""The file of an exported folder that says which step it is of; libraries that load the folder pass it over."""


def export_model(workers: WorkerGroup, final: Path, *, precision: str, about: Mapping[str, Any]) -> None:
    """Write the policy as a Hugging Face folder (`write_model`).

    Weights travel bucket by bucket (1 GiB) from policy rank 0 through the object store, so no file system need be
    shared.
    """
    (texts,) = workers.gather([workers.policies[0].call("text_files")])

    def parts() -> Iterator[Mapping[str, Any]]:
        for index in itertools.count():
            weights = workers.gather([p.call("export_bucket", index) for p in workers.policies])[0]
            if weights is None:
                return
            yield weights

    write_model(final, texts, parts(), precision=precision, about=about)


def write_model(
    final: Path,
    texts: Mapping[str, bytes],
    parts: Iterable[Mapping[str, Any]],
    *,
    precision: str,
    about: Mapping[str, Any],
) -> None:
    """Write a Hugging Face folder (safetensors, tokenizer, chat template, generation config) that loads in `precision`.

    `texts` are its files but for the weights, by name; `parts` are the weights by name, those of one file at a time;
    `about` becomes its `pitwall.json`.
    """
    from safetensors.torch import save_file

    with atomic_folder(final) as partial:
        for name, data in texts.items():
            (partial / name).write_bytes(data)
        config = json.loads(texts["config.json"])
        config.pop("torch_dtype", None)
        (partial / "config.json").write_text(
            json.dumps(config | {"dtype": precision}, indent=2) + "\n", encoding="utf-8"
        )
        files: list[list[str]] = []
        num_bytes = 0
        for weights in parts:
            num_bytes += sum(w.numel() * w.element_size() for w in weights.values())
            save_file(weights, partial / f"part-{len(files) + 1}.safetensors", metadata={"format": "pt"})
            files.append(list(weights))
        _name_parts(partial, files, num_bytes)
        (partial / ABOUT).write_text(json.dumps(dict(about), indent=2) + "\n", encoding="utf-8")


def _name_parts(partial: Path, files: list[list[str]], num_bytes: int) -> None:
    """Give the weight files the names that transformers looks for, and an index where there are several."""
    if len(files) == 1:
        (partial / "part-1.safetensors").rename(partial / "model.safetensors")
        return
    index: dict[str, str] = {}
    for number, names in enumerate(files, start=1):
        file = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        (partial / f"part-{number}.safetensors").rename(partial / file)
        index |= dict.fromkeys(names, file)
    text = json.dumps({"metadata": {"total_size": num_bytes}, "weight_map": index}, indent=2)
    (partial / "model.safetensors.index.json").write_text(text + "\n", encoding="utf-8")
