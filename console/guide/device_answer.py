"""Can it run? An answer from the published table of configurations, and from nothing else."""

import math
from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from console.guide.parts import Asked, knob_link, pick, said, value_text
from jobs.catalog.device_table import EVIDENCE, DeviceRow, device_table, rows

_GRADES = {
    "run": gettext_noop("run and reported"),
    "stated": gettext_noop("stated by its authors"),
    "settings": gettext_noop("settings published"),
    "none": gettext_noop("no entry"),
}
_MOST = 100_000.0  # billions
_UNNAMED = "not named"


def devices_page(asked: Asked) -> dict[str, Any]:
    """Return the context of the tab: the question, its answer in words, the rows it comes from, and those near it."""
    table = [row for row in device_table().values() if row.num_devices]
    method = pick(asked, "method", _("Method"), _offered(row.method for row in table))
    device = pick(asked, "device", _("Device"), _offered(row.device for row in table if row.device != _UNNAMED))
    given = asked.get("size", "").strip()
    size, problem = _size(given)
    found = rows(model_billion=size, method=method.chosen or None, device=device.chosen or None) if not problem else ()
    is_asked = bool(given or method.chosen or device.chosen)
    near = _near(size, found) if size is not None else ()
    return {
        "filters": (method, device),
        "size": given,
        "problem": problem,
        "classes": sorted({f"{row.size:g}" for row in table}, key=float),
        "verdict": _verdict(size, method.chosen, device.chosen, found) if is_asked and not problem else None,
        "rows": [_shown(row) for row in found],
        "near": [_shown(row) for row in near],
        "empty_places": [f"{row.size:g}B" for row in device_table().values() if not row.num_devices],
        "all": len(table),
        "is_asked": is_asked,
    }


def _offered(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, _(name)) for name in sorted(dict.fromkeys(names))]


def _size(given: str) -> tuple[float | None, str]:
    """Return the model's size in billions of parameters, or a sentence that says why it is none."""
    if not given:
        return None, ""
    try:
        size = float(given.lower().removesuffix("b").strip().replace(",", "."))
    except ValueError:
        size = math.nan
    if not 0 < size <= _MOST:
        return None, _("“%(given)s” is no model size. Use billions of parameters, as in 7.6.") % {"given": given[:40]}
    return size, ""


def _near(size: float, found: Iterable[DeviceRow]) -> tuple[DeviceRow, ...]:
    """Return the rows of the same size with another method or device."""
    have = {row.id for row in found}
    return tuple(row for row in rows(model_billion=size) if row.id not in have)


def _verdict(size: float | None, method: str, device: str, found: tuple[DeviceRow, ...]) -> dict[str, str]:
    """Say in a sentence what the rows answer, and how well it is known."""
    billion = _("%(size)s billion parameters") % {"size": f"{size:g}"} if size is not None else ""
    question = ", ".join(part for part in (billion, said(method), said(device)) if part)
    if not found:
        text = _("Nobody reported it: the table has no row for %(question)s.") % {"question": question}
        return {
            "state": "missing",
            "word": _("no row"),
            "text": text,
            "more": _("That does not say that it cannot run, only that no published configuration is known here."),
        }
    if size is None:
        text = ngettext("%(n)s published configuration.", "%(n)s published configurations.", len(found))
        more = _("Give the size of your model to get an answer.")
        return {"state": "ready", "word": _("published"), "text": text % {"n": len(found)}, "more": more}
    best = min(found, key=lambda row: (row.evidence != "run", row.num_devices, row.size))
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
    return {"state": state, "word": word, "text": text, "more": more}


def _device(row: DeviceRow) -> str:
    if row.device == _UNNAMED:
        return _("devices not named")
    memory = f"{row.memory_gb} GB"
    return said(row.device) if memory in row.device else f"{said(row.device)} {memory}"


def _shown(row: DeviceRow) -> dict[str, Any]:
    return {
        "row": row,
        "model": _(row.model),
        "size": f"{row.size:g}",
        "device": _device(row),
        "notes": said(row.notes),
        "grade": _(_GRADES[row.evidence]),
        "evidence": _(EVIDENCE[row.evidence]),
        "settings": [knob_link(name, value_text(value)) for name, value in row.settings.items()],
    }
