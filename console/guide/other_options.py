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
class OptionMatch:
    """One option or key: whose it is, and which field of New run says it, or why none has to."""

    name: str
    whose: str
    note: str


def beside(words: tuple[str, ...], trainer_and_version: str) -> list[OptionMatch]:
    """Return what the words find under a trainer ("" is any, "trainer:version" one of its versions), the nearest
    names first."""
    matches = [
        (normal(option.name) != "_".join(words), len(option.name), option, trainer, versions)
        for option, trainer, versions in _gathered(trainer_and_version)
        if has_words(normal(option.name), words)
    ]
    nearest = sorted(matches, key=lambda each: each[:2])[:MOST]
    return [
        OptionMatch(name=option.name, whose=whose(trainer, versions), note=_note(option))
        for *_rank, option, trainer, versions in nearest
    ]


def names_of_knobs() -> dict[str, list[str]]:
    """Return the names of each knob that are none of its flags, by its id."""
    by_knob: dict[str, list[str]] = {}
    for _trainer, _version, option in all_option_names():
        for name in option.spec_fields:
            if name in knobs() and option.name not in by_knob.setdefault(name, []):
                by_knob[name].append(option.name)
    return by_knob


def _gathered(trainer_and_version: str) -> Iterator[tuple[OptionName, str, list[str]]]:
    """Yield what is no knob's, once per trainer, with the versions that have it."""
    wanted, _colon, version = trainer_and_version.partition(":")
    gathered: dict[tuple[str, OptionName], list[str]] = {}
    for trainer, one, option in all_option_names():
        if (
            (not wanted or trainer == wanted)
            and (not version or one == version)
            and not set(option.spec_fields) & set(knobs())
        ):
            gathered.setdefault((trainer, option), []).append(one)
    for (trainer, option), versions in gathered.items():
        yield option, trainer, versions


def _note(option: OptionName) -> str:
    if not option.spec_fields:
        return _(option.why)
    return _("New run: %(field)s") % {"field": field_label(option.spec_fields[0])}
