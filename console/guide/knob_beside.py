"""What the guide's search of knobs finds that is no knob: options for fields of New run, or that no run has to say."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.forms.new_run.knob_index import all_option_names
from console.guide.parts import has_words, normal, whose
from console.labels.catalog import field_label
from jobs.adapters.adapter import OptionName
from jobs.catalog.knob import knobs

MOST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One option or key: whose it is, and which field of New run says it, or why none has to."""

    name: str
    whose: str
    says: str


def beside(words: tuple[str, ...], trainer_and_version: str) -> list[Beside]:
    """Return what the words find under a trainer ("" is any, "trainer:version" one of its versions), the nearest
    names first."""
    found = [
        (normal(spelled.name) != "_".join(words), len(spelled.name), spelled, trainer, versions)
        for spelled, trainer, versions in _gathered(trainer_and_version)
        if has_words(normal(spelled.name), words)
    ]
    nearest = sorted(found, key=lambda each: each[:2])[:MOST]
    return [
        Beside(name=spelled.name, whose=whose(trainer, versions), says=_said(spelled))
        for *_rank, spelled, trainer, versions in nearest
    ]


def names_of_knobs() -> dict[str, list[str]]:
    """Return the names of each knob that are none of its flags, by its id."""
    found: dict[str, list[str]] = {}
    for _trainer, _version, spelled in all_option_names():
        for name in spelled.says:
            if name in knobs() and spelled.name not in found.setdefault(name, []):
                found[name].append(spelled.name)
    return found


def _gathered(trainer_and_version: str) -> Iterator[tuple[OptionName, str, list[str]]]:
    """Yield what is no knob's, once per trainer, with the versions that have it."""
    asked, _colon, version = trainer_and_version.partition(":")
    found: dict[tuple[str, OptionName], list[str]] = {}
    for trainer, one, spelled in all_option_names():
        if (not asked or trainer == asked) and (not version or one == version) and not set(spelled.says) & set(knobs()):
            found.setdefault((trainer, spelled), []).append(one)
    for (trainer, spelled), versions in found.items():
        yield spelled, trainer, versions


def _said(spelled: OptionName) -> str:
    if not spelled.says:
        return _(spelled.why)
    return _("New run: %(field)s") % {"field": field_label(spelled.says[0])}
