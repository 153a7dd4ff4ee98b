"""What was published of models of a size: rows of the device table, and the answer that they give by themselves."""

from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from console.guide.parts import KnobLink, knob_link, shown_text, value_text
from jobs.catalog.device_table import EVIDENCE, DeviceRow, device_table, rows

_GRADES = {
    "run": gettext_noop("run and reported"),
    "stated": gettext_noop("stated by its authors"),
    "settings": gettext_noop("settings published"),
    "none": gettext_noop("no entry"),
}
_UNNAMED = "not named"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLine:
    """A row of the device table as the guide shows it; `grade` is how well it is known, `evidence` what that means."""

    row: DeviceRow
    model: str
    size: str
    device: str
    notes: str
    grade: str
    evidence: str
    settings: list[KnobLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVerdict:
    """What the rows answer: state and word of its badge, a sentence, and what to keep in mind."""

    state: str
    word: str
    text: str
    more: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAnswer:
    """The answer of the device table; `near` are rows of the same size by another method."""

    verdict: PublishedVerdict | None
    rows: list[PublishedLine]
    near: list[PublishedLine]
    empty_places: list[str]
    all: int


def published_answer(size: float | None, method: str) -> PublishedAnswer:
    """Return what was published of models of a size (billions of parameters; None: any) and a method ("": any): an
    answer in words, the rows it comes from, and those of the same size by another method."""
    matches = rows(model_billion=size, method=method or None)
    near = [row for row in rows(model_billion=size) if row not in matches] if size is not None else []
    return PublishedAnswer(
        verdict=_verdict(size, method, matches) if size is not None else None,
        rows=[shown_row(row) for row in matches],
        near=[shown_row(row) for row in near],
        empty_places=[f"{row.size:g}B" for row in device_table().values() if not row.num_devices],
        all=len(matches),
    )


def _verdict(size: float, method: str, matches: tuple[DeviceRow, ...]) -> PublishedVerdict:
    """Say in a sentence what the rows answer, and how well it is known."""
    billion = _("%(size)s billion parameters") % {"size": f"{size:g}"}
    question = ", ".join(part for part in (billion, shown_text(method)) if part)
    if not matches:
        text = _("Nobody reported it: the table has no row for %(question)s.") % {"question": question}
        return PublishedVerdict(
            state="missing",
            word=_("no row"),
            text=text,
            more=_("That does not say that it cannot run, only that no published configuration is known here."),
        )
    best = min(matches, key=lambda row: (row.evidence != "run", row.num_devices, row.size))
    words = {"model": _(best.model), "n": best.num_devices, "device": _device(best), "method": best.method}
    if best.evidence == "run":
        state, word = "ready", _("reported")
        text = _("Yes: %(model)s was trained with %(method)s on %(n)s × %(device)s.") % words
    else:
        state, word = "warning", _("stated, not reported")
        text = _("Its authors say so: %(model)s with %(method)s on %(n)s × %(device)s. Nobody reported a run.") % words
    more = ""
    if best.size > size * 1.1:
        more = _("The row is of the class %(size)sB: what trains that trains a smaller model of the same kind.") % {
            "size": f"{best.size:g}"
        }
    return PublishedVerdict(state=state, word=word, text=text, more=more)


def _device(row: DeviceRow) -> str:
    if row.device == _UNNAMED:
        return _("devices not named")
    memory = f"{row.memory_gb} GB"
    return shown_text(row.device) if memory in row.device else f"{shown_text(row.device)} {memory}"


def shown_row(row: DeviceRow) -> PublishedLine:
    """Return a row as the tables show it."""
    return PublishedLine(
        row=row,
        model=_(row.model),
        size=f"{row.size:g}",
        device=_device(row),
        notes=shown_text(row.notes),
        grade=_(_GRADES[row.evidence]),
        evidence=_(EVIDENCE[row.evidence]),
        settings=[knob_link(name, value_text(value)) for name, value in row.settings.items()],
    )
