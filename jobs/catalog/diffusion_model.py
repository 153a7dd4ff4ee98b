"""Diffusion transformers that are known without asking a hub: the config.json of their `transformer` folder.

`diffusion_models/*.toml` holds a file per model, its id is the file's name:

    label = "FLUX.1 dev"
    hub = ["black-forest-labs/FLUX.1-dev"]   # repositories with this very transformer
    source = "where the values were read"
    width = 1024                             # what it makes as it is usual: pixels, and frames of a clip
    height = 1024
    frames = 1
    [encoders]                               # parameters of what stands before it, frozen: text encoders and VAE
    "T5-XXL" = 4_762_310_656
    [config]                                 # as diffusers writes it, with _class_name
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.catalog.sentence import Sentence
from jobs.catalog.tables import folder_tables

_KEYS = {"label", "hub", "source", "width", "height", "frames", "encoders", "config"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionModel:
    """One model. `encoders`: parameters of each text encoder and of the VAE, by name."""

    id: str
    label: str
    hub: tuple[str, ...]
    config: Mapping[str, Any]
    source: str
    width: int
    height: int
    frames: int
    encoders: Mapping[str, int]


@cache
def diffusion_models() -> Mapping[str, DiffusionModel]:
    """Return every known model by id. Raises: ValueError, naming the file, for one badly written."""
    return {name: _model(name, table) for name, table in folder_tables("diffusion_models").items()}


def find_diffusion_model(name: str) -> DiffusionModel:
    """Return the model of an id or a hub repository, in any case. Raises: LookupError."""
    wanted = name.strip().lower()
    for model in diffusion_models().values():
        names = {model.id, *model.hub, *(hub.rpartition("/")[2] for hub in model.hub)}
        if wanted in {each.lower() for each in names}:
            return model
    raise LookupError(Sentence("{name!r} is not a known diffusion transformer.", name=name))


def _model(model_id: str, table: Mapping[str, Any]) -> DiffusionModel:
    if set(table) != _KEYS:
        raise ValueError(f"{model_id}: a diffusion model has {', '.join(sorted(_KEYS))}, no more and no less.")
    return DiffusionModel(
        id=model_id,
        label=table["label"],
        hub=tuple(table["hub"]),
        config=table["config"],
        source=table["source"],
        width=table["width"],
        height=table["height"],
        frames=table["frames"],
        encoders=table["encoders"],
    )
