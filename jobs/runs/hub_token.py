"""The token for gated models and data of the Hugging Face hub goes with the jobs that fetch from there, no other."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings

_PATHS = ("models.critic_path", "models.reference_path", "models.teacher_path", "models.tokenizer_path")
_ROLES = ("", "policy")  # what such a knob says when it names no place


def hub_environment(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return HF_TOKEN as the console has it where the spec names anything of the hub; {} else, or without one."""
    return {"HF_TOKEN": settings.HF_TOKEN} if settings.HF_TOKEN and uses_hub(spec) else {}


def uses_hub(spec: Mapping[str, Any]) -> bool:
    """Return True if model, data, a reward or a path of a knob is a name of the hub."""
    knobs = spec.get("knobs", {})
    paths = [knob.get("value") for name, knob in knobs.items() if name in _PATHS and isinstance(knob, Mapping)]
    return any(_is_name(path) for path in paths) or _has_hub({k: v for k, v in spec.items() if k != "knobs"})


def _has_hub(value: Any) -> bool:
    if isinstance(value, Mapping):
        if value.get("kind") == "hub" or (value.get("kind") == "model" and _is_name(value.get("location"))):
            return True
        return any(_has_hub(inner) for inner in value.values())
    return isinstance(value, Sequence) and not isinstance(value, str) and any(_has_hub(inner) for inner in value)


def _is_name(place: object) -> bool:
    return isinstance(place, str) and place not in _ROLES and not place.startswith(("/", "."))
