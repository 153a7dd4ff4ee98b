"""The filter line of the run list: `math state:running,failed -tag:scratch learning_rate>=1e-4 reward/mean>0.8`."""

import difflib
import re
from dataclasses import dataclass

from django.utils.translation import gettext as _

from jobs.catalog.knob import knobs
from jobs.models import LIVE
from jobs.runs.filter import FilterInvalid, RunFilter, parse_filter

VIEWS = ("all", "running", "failed", "mine", "archived")
"""The saved filters."""

_KEYED = re.compile(r"^(?P<not>-?)(?P<key>[a-z_]+):(?P<values>.*)$")
_COMPARED = re.compile(r"^(?P<name>[a-z_]+)(?P<rest>(?:[<>]=?|!=|==?).+)$")
_KEYS = ("state", "tag", "algorithm", "by", "sweep")


@dataclass(slots=True)
class _Parts:
    """What the line says, gathered part by part."""

    words: list[str]
    states: list[str]
    tags: list[str]
    without_tags: list[str]
    algorithms: list[str]
    authors: list[str]
    studies: list[str]


def read_line(text: str, *, view: str, username: str) -> RunFilter:
    """Return the filter of a typed line within a saved filter.

    Raises: FilterInvalid, a sentence that names the part and what is allowed.
    """
    parts = _Parts([], [], [], [], [], [], [])
    for word in text.split():
        keyed = _KEYED.match(word)
        if keyed:
            _read_keyed(keyed, parts)
        else:
            parts.words.append(_in_full(word))
    if view == "running":
        parts.states = [s for s in parts.states if s in LIVE] or list(LIVE)
    elif view == "failed":
        parts.states = ["failed"]
    elif view == "mine":
        parts.authors = [username]
    return parse_filter(
        q=" ".join(parts.words),
        states=parts.states,
        tags=parts.tags,
        without_tags=parts.without_tags,
        algorithms=parts.algorithms,
        authors=parts.authors,
        studies=parts.studies,
        is_archived=view == "archived",
    )


def _read_keyed(keyed: re.Match[str], parts: _Parts) -> None:
    key, values = keyed["key"], [value for value in keyed["values"].split(",") if value]
    if key not in _KEYS:
        near = difflib.get_close_matches(key, _KEYS, n=1)
        hint = near[0] if near else ", ".join(_KEYS)
        message = _("There is no filter “%(key)s:”. Use %(hint)s, or compare a knob or metric, as in reward/mean>0.8.")
        raise FilterInvalid("q", message % {"key": key, "hint": hint})
    if not values:
        message = _("“%(key)s:” stands alone. Write what to look for after it, as in %(key)s:%(example)s.")
        example = {"state": "failed", "tag": "baseline", "algorithm": "grpo", "by": "admin", "sweep": "s-1a2b3c4d"}[key]
        raise FilterInvalid("q", message % {"key": key, "example": example})
    if keyed["not"] and key != "tag":
        message = _("Only tags can be left out: -tag:%(value)s. Name the wanted ones instead: %(key)s:…")
        raise FilterInvalid("q", message % {"key": key, "value": values[0]})
    target = {
        "state": parts.states,
        "algorithm": parts.algorithms,
        "by": parts.authors,
        "tag": parts.tags,
        "sweep": parts.studies,
    }[key]
    (parts.without_tags if keyed["not"] else target).extend(values)


def _in_full(word: str) -> str:
    """Return a comparison with the knob's full id where its last part names only one knob."""
    compared = _COMPARED.match(word)
    if compared is None:
        return word
    lasts = [knob_id.partition(".")[2] for knob_id in knobs()]
    matches = [knob_id for knob_id in knobs() if knob_id.partition(".")[2] == compared["name"]]
    near = difflib.get_close_matches(compared["name"], lasts, n=1, cutoff=0.7)
    if not matches and near:
        message = _("There is no knob “%(name)s”. Did you mean %(near)s?")
        raise FilterInvalid("q", message % {"name": compared["name"], "near": near[0]})
    if len(matches) > 1:
        message = _("“%(name)s” can be %(ids)s. Write one of them in full.")
        raise FilterInvalid("q", message % {"name": compared["name"], "ids": ", ".join(matches)})
    return matches[0] + compared["rest"] if matches else word
