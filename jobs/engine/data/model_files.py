"""Where a model's files are on this node: bundled with the engine, a folder, or fetched from the hub."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TypedDict

from jobs.catalog.spec.runspec import ModelSource, RunSpec
from jobs.engine.problem import RunProblem, first_sentence

BUNDLED = Path(__file__).resolve().parents[1] / "bundled"
_TEXT_FILES = ["*.json", "*.jinja"]
_SCALES = ("_scale", "_scale_inv", ".scales", ".qzeros", ".g_idx", ".absmax", ".quant_map", "_scale_2", "input_scale")
_ALL_FILES = [*_TEXT_FILES, "*.safetensors"]


def model_folder(model: ModelSource, *, with_weights: bool = True) -> Path:
    """Return the folder that holds config, tokenizer and (if asked for) safetensors weights.

    Raises: RunProblem naming `model.id` if the folder is not there, is no causal language model, or has no usable
    weights.
    """
    folder = find_model(model, with_weights=with_weights)
    config = read_json(folder / "config.json", field="model.id")
    names = architectures(config)
    if not any("CausalLM" in name for name in names):
        what = ", ".join(names) or "no architecture"
        raise RunProblem(
            "model.id",
            f"{model.id!r} is not a causal language model: its config.json names {what}. Use a ...ForCausalLM model.",
        )
    if not (folder / "tokenizer.json").is_file():
        raise RunProblem(
            "model.id",
            f"{model.id!r} has no tokenizer.json. Save its fast tokenizer into the folder (save_pretrained).",
        )
    if with_weights:
        count_parameters(folder, model.id)
    return folder


def source_of(place: str) -> ModelSource:
    """Return the model that a text names: bundled, a folder, or a hub id."""
    if place.startswith(("/", "~", ".")):
        return ModelSource(kind="path", id=place)
    is_bundled = "/" not in place and (BUNDLED / place / "config.json").is_file()
    return ModelSource(kind="bundled" if is_bundled else "hub", id=place)


def read_config(model: ModelSource) -> dict[str, object]:
    """Return a model's config.json; of a hub model that file alone is fetched. Raises: RunProblem naming `model.id`."""
    if model.kind != "hub":
        folder = find_model(model, with_weights=False)
        return with_weights_counted(read_json(folder / "config.json", field="model.id"), folder)
    import huggingface_hub as hub

    where = {"repo_id": model.id, "filename": "config.json", "revision": model.revision or None}
    try:
        # The download asks six times, for 24 s, if the hub does not answer: here somebody waits.
        if not isinstance(hub.try_to_load_from_cache(**where), str):
            hub.get_hf_file_metadata(hub.hf_hub_url(**where))
        file = hub.hf_hub_download(**where)
    except Exception as error:  # as in _fetch
        raise RunProblem(
            "model.id",
            f"The config.json of the hub model {model.id!r} cannot be fetched: {first_sentence(error)} "
            "Check the id and the connection.",
        ) from error
    return with_weights_counted(read_json(Path(file), field="model.id"), Path(file).parent)


def with_weights_counted(config: dict[str, object], folder: Path) -> dict[str, object]:
    """Return a config with the table `safetensors` as the hub's API gives it: elements by number type.

    Headers alone are read, and only where all files are there; scales and zero points of quantised weights are no
    parameters. Without whole weights, the config as it is.
    """
    index = folder / "model.safetensors.index.json"
    try:
        parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values() if index.is_file() else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return config
    files = (
        sorted({folder / str(part) for part in parts}) if parts is not None else sorted(folder.glob("*.safetensors"))
    )
    by_type: dict[str, int] = {}
    try:
        for file in files:
            for name, tensor in _header(file, folder.name).items():
                if not name.endswith(_SCALES):
                    by_type[str(tensor["dtype"])] = by_type.get(str(tensor["dtype"]), 0) + prod(tensor["shape"])
    except (RunProblem, KeyError, TypeError):
        return config
    return {**config, "safetensors": {"parameters": by_type}} if by_type else config


def text_files(folder: Path) -> dict[str, bytes]:
    """Return a model folder's files that are not weights: config, tokenizer, chat template, generation config."""
    skipped = {"model.safetensors.index.json", "pytorch_model.bin.index.json"}
    files = [f for pattern in ("*.json", "*.jinja", "*.txt", "*.model") for f in sorted(folder.glob(pattern))]
    return {f.name: f.read_bytes() for f in files if f.name not in skipped}


def architectures(config: Mapping[str, object]) -> list[str]:
    """Return the classes that a config.json names."""
    named = config.get("architectures")
    return [str(name) for name in named] if isinstance(named, list) else []


def context_tokens(config: Mapping[str, object]) -> int:
    """Return the longest sequence that a config.json allows, 0 where it does not say."""
    most = config.get("max_position_embeddings")
    return int(most) if isinstance(most, int | float) else 0


def longest_sequence(spec: RunSpec, folder: Path) -> int:
    """Return the tokens of the longest prompt and answer of a run.

    Raises: RunProblem naming `knobs.rollout.max_new_tokens` if the model of the folder does not take so many.
    """
    longest = spec.int_knob("rollout.max_prompt_tokens") + spec.int_knob("rollout.max_new_tokens")
    context = context_tokens(read_json(folder / "config.json", field="model.id")) or longest
    if longest > context:
        raise RunProblem(
            "knobs.rollout.max_new_tokens",
            f"Longest prompt and answer make {longest} tokens; the model takes {context}. Lower one of the two.",
        )
    return longest


def num_layers(folder: Path) -> int:
    """Return how many layers the model of a folder has, 1 where its config.json does not say."""
    layers = read_json(folder / "config.json", field="model.id").get("num_hidden_layers")
    return int(layers) if isinstance(layers, int) else 1


def find_model(model: ModelSource, *, with_weights: bool = True) -> Path:
    """Return the folder of a model's files, whatever its architecture. Raises: RunProblem naming `model.id`."""
    if model.kind == "bundled":
        folder = BUNDLED / model.id
        if "/" in model.id or not (folder / "config.json").is_file():
            names = ", ".join(sorted(p.parent.name for p in BUNDLED.glob("*/config.json")))
            raise RunProblem("model.id", f"There is no bundled model {model.id!r}. There is: {names}.")
        return folder
    if model.kind == "path":
        folder = Path(model.id).expanduser()
        if not folder.is_dir():
            raise RunProblem(
                "model.id",
                f"There is no folder {model.id!r} on this node. Give the path of a Hugging Face model folder.",
            )
        if not (folder / "config.json").is_file():
            raise RunProblem(
                "model.id", f"{model.id!r} holds no config.json. Give the path of a Hugging Face model folder."
            )
        return folder
    return _fetch(model, with_weights)


def _fetch(model: ModelSource, with_weights: bool) -> Path:
    import huggingface_hub

    patterns = _ALL_FILES if with_weights else _TEXT_FILES
    try:
        return Path(
            huggingface_hub.snapshot_download(model.id, revision=model.revision or None, allow_patterns=patterns)
        )
    except Exception as error:  # the hub client raises many unrelated types; all mean that the model cannot be had
        raise RunProblem(
            "model.id",
            f"The hub model {model.id!r} cannot be fetched: {first_sentence(error)} Check the id and the connection, "
            "or give a local path.",
        ) from error


def read_json(path: Path, *, field: str) -> dict[str, object]:
    """Return the JSON object in `path`. Raises: RunProblem naming `field` if it is not there or not an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunProblem(field, f"{path.name} of {path.parent.name!r} cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise RunProblem(field, f"{path.name} of {path.parent.name!r} is not a JSON object.")
    return value


def count_parameters(folder: Path, name: str) -> tuple[int, str]:
    """Return how many parameters the folder's safetensors files hold, and their number type (`bfloat16`).

    Reads headers only. Raises: RunProblem if there is no such file or one is broken (a download cut short, a pointer
    file).
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RunProblem("model.id", f"{name!r} has no safetensors weights. Save the model with save_pretrained.")
    total, kind = 0, ""
    for file in files:
        for tensor in _header(file, name).values():
            size = 1
            for length in tensor["shape"]:
                size *= length
            total += size
            kind = kind or str(tensor["dtype"])
    return total, {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}.get(kind, kind)


class _TensorHeader(TypedDict):
    dtype: str
    shape: list[int]
    data_offsets: list[int]


def _header(file: Path, name: str) -> dict[str, _TensorHeader]:
    """Format: 8 bytes little-endian header length, a JSON header, then the tensors (safetensors' own description)."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= file.stat().st_size - 8:
                raise ValueError("the file is cut short")
            header = json.loads(stream.read(length))
        end = max((t["data_offsets"][1] for k, t in header.items() if k != "__metadata__"), default=0)
        if 8 + length + end > file.stat().st_size:
            raise ValueError("the file is cut short")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunProblem(
            "model.id", f"{file.name} of {name!r} is not a whole safetensors file: {error}. Fetch it again."
        ) from error
    return {k: v for k, v in header.items() if k != "__metadata__"}
