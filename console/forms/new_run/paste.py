"""What people paste into the New run page: a spec as JSON, or a command or config of another trainer."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from jobs.adapters.adapter import Omission, OptionRename, ReadBack, adapter
from jobs.catalog.sentence import in_words, sentence_of
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers

_FENCE = re.compile(r"^[ \t]*```[\w+-]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)

_NOT_SAID = {
    "model": gettext_noop("The command names no model. Choose one."),
    "data": gettext_noop("The command names no data. Choose some."),
}
_ASKED = "?"  # stands for a name while the rest is checked; the form is given none


class NotRead(ValueError):
    """The text is nothing that a run can be made of; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSpec:
    """A spec that was read; `trainer` is "" for a spec as JSON, else whose command it was.

    What the command says is in one of three groups: understood, left out on purpose, not understood.
    """

    spec: RunSpec
    trainer: str = ""
    understood: tuple[str, ...] = ()
    translated: tuple[OptionRename, ...] = ()
    left_out: tuple[Omission, ...] = ()
    unread: tuple[Omission, ...] = ()
    num_defaults: int = 0


def read_paste(text: str) -> ImportedSpec:
    """Return the spec that a text means. Raises: SpecInvalid, NotRead."""
    if text.lstrip().startswith("{"):
        try:
            return ImportedSpec(spec=parse_spec(json.loads(text)))
        except (ValueError, RecursionError) as error:
            if isinstance(error, SpecInvalid):
                raise
            why = _("That is not JSON: %(why)s. Paste the text of a spec file, from { to }.") % {"why": error}
            raise NotRead(why) from error
    if not text.strip():
        raise NotRead(_("Nothing to import. Paste a command, a YAML config or a spec."))
    text = _unfenced(text)
    refusals = []
    for name in _likely(text):
        try:
            return _checked(name, adapter(name).read_back(arguments=[text], version=""))
        except ValueError as error:  # its own sentence; one that it read and that is wrong goes on
            if isinstance(error, SpecInvalid):
                raise
            refusals.append(in_words(sentence_of(error), _))
    raise NotRead(" ".join(dict.fromkeys(refusals)))


def _unfenced(text: str) -> str:
    """Return what stands between the marks of a block of code, as README files and chats have them, with the blanks of
    a keyboard."""
    block = _FENCE.search(text)
    return (block[1] if block is not None else text).removeprefix("\ufeff").replace("\xa0", " ")


def _likely(text: str) -> list[str]:
    """Return the other trainers, those that the text names first."""
    others = [info for info in trainers().values() if info.package]
    return [info.id for info in sorted(others, key=lambda info: info.package not in text)]


def _checked(name: str, read: ReadBack) -> ImportedSpec:
    """Return the spec of what was read; a knob whose value it does not take is told beside the rest that was not."""
    raw = dict(read.spec)
    unread = [Omission(option=name, value="", why=why) for name, why in _NOT_SAID.items() if name not in raw]
    unread += read.unread
    to_name = [name for name in _NOT_SAID if not _is_named(raw.get(name, {}))]
    raw |= {name: {**raw.get(name, {}), "kind": "path", "id": _ASKED} for name in to_name}
    try:
        spec = parse_spec(raw)
    except SpecInvalid as error:
        knobs: Mapping[str, Any] = raw.get("knobs", {})
        wrong = {p.field.removeprefix("knobs."): p.message for p in error.problems if p.field.startswith("knobs.")}
        wrong = {knob_id: message for knob_id, message in wrong.items() if knob_id in knobs}
        if not wrong:
            raise
        unread += [Omission(option=knob_id, value=str(knobs[knob_id]), why=why) for knob_id, why in wrong.items()]
        spec = parse_spec(raw | {"knobs": {k: v for k, v in knobs.items() if k not in wrong}})
    nameless = {name: getattr(spec, name).model_copy(update={"id": ""}) for name in to_name}
    return ImportedSpec(
        spec=spec.model_copy(update=nameless),
        trainer=f"{_(trainers()[name].label)} {spec.trainer.version}",
        understood=read.understood,
        translated=read.translated,
        left_out=_in_words(read.left_out),
        unread=_in_words(unread),
        num_defaults=read.num_defaults,
    )


def _is_named(source: Mapping[str, Any]) -> bool:
    return bool(source.get("id")) or source.get("kind") == "bundled"


def _in_words(items: Iterable[Omission]) -> tuple[Omission, ...]:
    """Return the items with their reasons in the reader's language, where it has words for them."""
    return tuple(replace(item, why=in_words(item.why, _)) for item in items)
