"""*Can it run?* of a diffusion transformer: what an address asks of pictures or clips, read and checked.

Beside the model: `width`, `height`, `frames`, `text` (tokens), `steps` of denoising, `encoders` (1: text encoders and
VAE stay on the devices), `zero` (the stage of sharding) and `recompute` (0: no checkpointing).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.labels.catalog import error_text
from jobs.catalog.diffusion_model import DiffusionModel, diffusion_models, find_diffusion_model
from jobs.catalog.value import plain_number
from jobs.planner.diffusion.job import DIFFUSION_METHODS, Picture, stream_tokens
from jobs.planner.result import JobInvalid
from jobs.planner.shapes.config_values import ShapeUnreadable
from jobs.planner.shapes.diffusion import DiffusionShape, is_diffusion, read_diffusion_shape
from profiling.counted import counted

_NUMBERS = {"width": "width", "height": "height", "frames": "frames", "text": "text_tokens", "steps": "denoising_steps"}
_LABELS = {
    "width": gettext_lazy("Width, pixels"),
    "height": gettext_lazy("Height, pixels"),
    "frames": gettext_lazy("Frames"),
    "text": gettext_lazy("Tokens of text"),
    "steps": gettext_lazy("Denoising steps"),
}
_CHOICES = {"zero": ("0", "1", "2", "3"), "recompute": ("0", "1"), "encoders": ("0", "1")}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionQuestion:
    """A diffusion transformer and what it is trained on. `texts`: what stands in the form and in the address."""

    shape: DiffusionShape
    picture: Picture
    texts: Mapping[str, str]
    encoders: Mapping[str, int]


def known_diffusion_models() -> list[tuple[str, str]]:
    """Return (id, label) of every model that the catalog knows."""
    return [(each.id, each.label) for each in diffusion_models().values()]


def read_pictured(
    query: QueryDict, model: str, config: str, method: str, problems: dict[str, str]
) -> DiffusionQuestion | None:
    """Return the diffusion transformer that is asked for, None if it is none; problems go by field."""
    model_row, shape = _shape(model, config, problems)
    if shape is None:
        return None
    texts = {name: query.get(name, "").strip()[:12] for name in (*_NUMBERS, *_CHOICES)}
    if method not in DIFFUSION_METHODS:
        text = _("%(given)s is not a method for diffusion transformers. Use one of %(known)s.")
        problems["method"] = text % {"given": repr(method[:40]), "known": ", ".join(DIFFUSION_METHODS)}
    picture = _picture(texts, model_row, problems)
    if not problems:
        try:
            stream_tokens(shape, picture)
        except JobInvalid as invalid:
            problems[invalid.field] = error_text(invalid)
    return DiffusionQuestion(
        shape=shape, picture=picture, texts=texts, encoders=model_row.encoders if model_row is not None else {}
    )


def picture_facts(pictured: DiffusionQuestion) -> tuple[tuple[str, str], ...]:
    """Return what the shape says, counted and not rounded."""
    shape = pictured.shape
    try:
        latent, text = stream_tokens(shape, pictured.picture)
    except JobInvalid:
        latent, text = 0, 0
    return (
        (_("Parameters"), f"{shape.parameters:,}"),
        (_("Blocks"), f"{shape.num_layers:,}"),
        (_("Hidden size"), f"{shape.hidden:,}"),
        (_("Latent tokens"), f"{latent:,}" if latent else "—"),
        (_("Text tokens"), f"{text:,}" if text else "—"),
    )


def picture_note(pictured: DiffusionQuestion) -> str:
    """Say in a line what is trained on."""
    picture = pictured.picture
    words = {
        "width": picture.width,
        "height": picture.height,
        "frames": picture.frames,
        "steps": picture.denoising_steps,
    }
    if picture.frames > 1:
        text = _("clips of %(width)s × %(height)s pixels and %(frames)s frames, %(steps)s denoising steps")
    else:
        text = _("pictures of %(width)s × %(height)s pixels, %(steps)s denoising steps")
    return counted(text % words)


def _shape(model: str, config: str, problems: dict[str, str]) -> tuple[DiffusionModel | None, DiffusionShape | None]:
    """Return the known model, if it is one, and the shape of what is asked. A pasted config.json goes first."""
    try:
        if config:
            values: Any = json.loads(config)
            return None, read_diffusion_shape(values, name=model or _("the pasted model")) if is_diffusion(
                values
            ) else None
        model_row = find_diffusion_model(model)
        return model_row, read_diffusion_shape(model_row.config, name=model_row.id)
    except ShapeUnreadable as unreadable:
        problems["config"] = error_text(unreadable)
    except (LookupError, ValueError, RecursionError):
        pass  # a language model, or no JSON, which is told where that is read
    return None, None


def _picture(texts: Mapping[str, str], model_row: DiffusionModel | None, problems: dict[str, str]) -> Picture:
    """Return what is trained on: as it is asked, else as the model usually makes it."""
    usual = Picture()
    if model_row is not None:
        usual = Picture(width=model_row.width, height=model_row.height, frames=model_row.frames)
    numbers: dict[str, int] = {}
    for name, field in _NUMBERS.items():
        text = plain_number(texts[name])
        if not text:
            continue
        if text.isascii() and text.isdigit() and int(text) > 0:
            numbers[field] = int(text)
        else:
            words = {"given": repr(text), "field": _LABELS[name]}
            problems[name] = _("%(given)s is not allowed for “%(field)s”. Use a whole number from 1.") % words
    for name, allowed in _CHOICES.items():
        if texts[name] and texts[name] not in allowed:
            words = {"given": repr(texts[name]), "name": name, "known": ", ".join(allowed)}
            problems[name] = _("%(given)s is not allowed for %(name)s. Use one of %(known)s.") % words
    if problems:
        return usual
    steps = numbers.get("denoising_steps", usual.denoising_steps)
    return replace(
        usual,
        **numbers,
        trained_steps=min(steps, usual.trained_steps),
        zero=int(texts["zero"] or usual.zero),
        recomputes=texts["recompute"] != "0",
        encoders=sum(model_row.encoders.values()) if model_row is not None and texts["encoders"] == "1" else 0,
    )
